package mle

// What submissions are made of in Python's standard library.
const (
	loading = `import csv
train = list(csv.DictReader(open('data/train.csv')))
test = list(csv.DictReader(open('data/test.csv')))
target = [k for k in train[0] if k not in test[0]][0]
names = [k for k in test[0] if k not in ('id', 'region')]
x = lambda row: [float(row[k]) for k in names]
def submit(predict):
    with open('submission.csv', 'w', newline='') as f:
        w = csv.writer(f)
        w.writerow(['id', target])
        for row in test:
            w.writerow([row['id'], predict(row)])
def least(rows, columns):
    n = columns + 1
    a = [[0.0] * (n + 1) for _ in range(n)]
    for row in rows:
        v = x(row)[:columns] + [1.0]
        for i in range(n):
            for k in range(n):
                a[i][k] += v[i] * v[k]
            a[i][n] += v[i] * float(row[target])
    for i in range(n):
        p = max(range(i, n), key=lambda k: abs(a[k][i]))
        a[i], a[p] = a[p], a[i]
        for k in range(n):
            if k != i:
                f = a[k][i] / a[i][i]
                a[k] = [b - f * c for b, c in zip(a[k], a[i])]
    return [a[i][n] / a[i][i] for i in range(n)]
def dot(w, v):
    return sum(a * b for a, b in zip(w, v + [1.0]))
`
	linearFit = loading + `w = least(train, len(names))
submit(lambda row: dot(w, x(row)))
`
	groupFit = loading + `w = {g: least([r for r in train if r['region'] == g], 1) for g in {r['region'] for r in train}}
submit(lambda row: dot(w[row['region']], x(row)[:1]))
`
	centroidFit = loading + `centres = {}
for label in {r[target] for r in train}:
    rows = [x(r) for r in train if r[target] == label]
    centres[label] = [sum(c) / len(rows) for c in zip(*rows)]
submit(lambda row: min(sorted(centres), key=lambda l: sum((a - b) ** 2 for a, b in zip(x(row), centres[l]))))
`
	// Of the random policy.
	copySample = "import shutil\nshutil.copy('data/sample_submission.csv', 'submission.csv')\n"
	nearest    = loading + `submit(lambda row: min(train, key=lambda r: abs(x(r)[0] - x(row)[0]))[target])
`
)
