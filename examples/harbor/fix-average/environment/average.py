import sys

numbers = [float(a) for a in sys.argv[1:]]
print(sum(numbers) / (len(numbers) + 1))
