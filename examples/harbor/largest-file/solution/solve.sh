#!/bin/bash
ls -S /data/files | head -n 1 >/app/largest.txt
