assert open('/app/ranking.txt').read().split() == ['dijkstra', 'boole', 'ada', 'curry']
