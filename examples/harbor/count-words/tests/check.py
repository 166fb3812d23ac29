assert int(open('/app/words.txt').read()) == 16
