import subprocess
for args, want in (['2', '4', '9'], '5.0'), (['7'], '7.0'), (['-1', '2'], '0.5'):
    got = subprocess.run(['python3', '/app/average.py', *args], capture_output=True, text=True, timeout=10).stdout
    assert got.strip() == want, (args, got)
