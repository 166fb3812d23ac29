#!/bin/bash
find /data/files -type f -printf '%s %f\n' | sort -rn | head -n 1 | cut -d ' ' -f 2- >/app/largest.txt
