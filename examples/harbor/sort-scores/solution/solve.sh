#!/bin/bash
tail -n +2 /app/scores.csv | sort -t, -k2,2nr | cut -d, -f1 >/app/ranking.txt
