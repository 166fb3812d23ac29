"""The package alone, in one process: a line of standard input plays episodes of the actions of BenchmarkPool. usage: bare.py ACTION...; a line is
"lean N", with what a step of ours needs (observation, score, end), or "own N", with the package's own step (all possible actions too). Each answer
is the seconds of wall time and of processor time, this process's and Java's."""
import os
import sys
import time

from scienceworld import ScienceWorldEnv

actions = sys.argv[1:]
env = ScienceWorldEnv(envStepLimit=1000)
server = env.server
ticks = os.sysconf("SC_CLK_TCK")


def lean(i):
    server.load("find-plant", i % 50, "easy", False)
    server.step("look around")
    for a in actions:
        server.step(a), server.getScore(), server.getCompleted()


def own(i):
    env.load("find-plant", i % 50, "easy", generateGoldPath=False)
    env.reset()
    for a in actions:
        env.step(a)


def processor():
    with open("/proc/%d/stat" % env._gateway.java_process.pid) as f:
        user, system = f.read().rpartition(")")[2].split()[11:13]
    return time.process_time() + (int(user) + int(system)) / ticks


played = 0
for line in sys.stdin:
    kind, n = line.split()
    begun, used = time.perf_counter(), processor()
    for _ in range(int(n)):
        {"lean": lean, "own": own}[kind](played)
        played += 1
    print(time.perf_counter() - begun, processor() - used, flush=True)
env.close()
