assert open('/app/largest.txt').read().strip() == 'part-9'
