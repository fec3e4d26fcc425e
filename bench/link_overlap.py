#!/usr/bin/env python3
"""link_overlap.py - how much of the gradients' way to the other rank hides behind backward, on a real link.

    link_overlap.py LPLAN [SEQUENCES]

Two network namespaces joined by a pair of virtual interfaces, each shaped to 1 Gbit/s; a rank in either, as
on two hosts, over TCP. A data-parallel plan of several buckets trains a few steps with --trace. Bucket time
is what the buckets' bytes take on the link at its full rate; exposed is what a rank waits for them. Prints a
line a step and the worst rank's share of bucket time that is hidden, over all steps but the first; fails
below 80 %. Exits 77, which meson counts as skipped, with a line that says why, where there is no root, no
iproute2, no OpenMPI or no permission to make namespaces.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(os.environ.get("LPLAN_SOURCE_ROOT", pathlib.Path(__file__).resolve().parents[1]))
MODEL = ROOT / "examples" / "models" / "llama-10m.json"
CLUSTER = ROOT / "examples" / "clusters" / "host.json"
RATE_BYTES_S, RATE = 125e6, "1gbit"
SEQ, STEPS, BUCKET, WANTED = 128, 6, 4 << 20, 0.80
HOSTS = [f"lplan{os.getpid()}{side}" for side in "ab"]
ADDRESSES = ["10.211.77.1", "10.211.77.2"]


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def run(*words, **more):
    return subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=600, **more)


def link_up():
    """Both namespaces and the shaped pair between them."""
    for host in HOSTS:
        run("ip", "netns", "add", host)
        run("ip", "-n", host, "link", "set", "lo", "up")
    run("ip", "link", "add", "lplan0", "netns", HOSTS[0], "type", "veth", "peer", "name", "lplan0",
        "netns", HOSTS[1])
    for host, address in zip(HOSTS, ADDRESSES):
        run("ip", "-n", host, "addr", "add", f"{address}/24", "dev", "lplan0")
        run("ip", "-n", host, "link", "set", "lplan0", "up")
        run("tc", "-n", host, "qdisc", "add", "dev", "lplan0", "root", "tbf", "rate", RATE, "burst",
            "256kb", "latency", "50ms")


def link_down():
    for host in HOSTS:
        subprocess.run(["ip", "netns", "del", host], check=False, capture_output=True)


def as_host(host, command):
    """Under a host name of its own, for else MPI sees one machine and leaves the link out."""
    return ["ip", "netns", "exec", host, "unshare", "--uts", "sh", "-c",
            f"hostname {host}; exec \"$@\"", "sh", *command]


def trace_of(lplan, folder, sequences):
    """What the planner says of the plan, and the trace of its trainer."""
    plan = folder / "plan.json"
    said = run(lplan, "plan", MODEL, CLUSTER, "--gpus", 2, "--global-batch", 2 * sequences, "--seq", SEQ,
               "--recipe", "fp32", "--pin", f"tp=1,dp=2,pp=1,zero=1,mbs={sequences}", "-o", plan, "--json")
    plan.write_text(json.dumps({**json.loads(plan.read_text()), "bucket_bytes": BUCKET}))
    run(lplan, "build", plan, "-o", folder / "trainer", "--no-check")
    text = folder / "text"
    text.write_text("the ring carries blocks of a sum to every rank and each waits for its turn\n" * 400)
    agent = folder / "agent"
    agent.write_text("#!/bin/sh\nhost=$1; shift\n"
                     "exec ip netns exec \"$host\" unshare --uts sh -c \"hostname $host; "
                     "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; $*\"\n")
    agent.chmod(0o755)
    hosts = folder / "hosts"
    hosts.write_text("".join(f"{host} slots=1\n" for host in HOSTS))
    env = dict(os.environ, OMP_NUM_THREADS="1", OMPI_MCA_plm_rsh_agent=str(agent),
               OMPI_MCA_plm_rsh_no_tree_spawn="1", OMPI_MCA_btl_tcp_if_include="lplan0",
               OMPI_MCA_oob_tcp_if_include="lplan0", OMPI_MCA_btl="self,tcp")
    trace = folder / "trace.json"
    run(*as_host(HOSTS[0], [lplan, "run", folder / "trainer", "--hosts", hosts, "--quiet", "--data", text,
                            "--steps", STEPS, "--lr", "1e-3", "--log", folder / "log", "--trace", trace]),
        env=env)
    return json.loads(said.stdout), json.loads(trace.read_text())


def spans_of(trace, lane):
    """(rank, step, name, begin, end) in seconds of one lane of the ranks: 0 work, 1 waiting."""
    return [(e["pid"], e["args"]["step"], e["name"], e["ts"] * 1e-6, (e["ts"] + e["dur"]) * 1e-6)
            for e in trace if e["ph"] == "X" and e["tid"] == lane]


def buckets_of(trace, rank):
    """(begin, end) of the exchanges of gradients of one rank, in seconds."""
    begun = {e["id"]: e["ts"] * 1e-6 for e in trace if e["ph"] == "b" and e["pid"] == rank}
    return sorted((begun[e["id"]], e["ts"] * 1e-6) for e in trace
                  if e["ph"] == "e" and e["pid"] == rank and e["name"] == "reduce-scatter")


def judge(said, trace):
    """The share of bucket time that is hidden; of two ranks that which waits less, for the other one waits
    for a rank that computes, not for the link."""
    bucket_s = said["stages"][0]["bytes"]["gradients"] / 2 / RATE_BYTES_S
    waits, work = spans_of(trace, 1), spans_of(trace, 0)
    shares = []
    print(f"buckets of a step: {bucket_s * 1e3:.0f} ms of the link; a step, ms:")
    for step in range(1, STEPS):
        exposed, backward = [], []
        for rank in range(2):
            exposed.append(sum(end - begin for r, s, name, begin, end in waits
                               if (r, s, name) == (rank, step, "reduce-scatter")))
            backward.append(sum(end - begin for r, s, name, begin, end in work
                                if (r, s) == (rank, step) and name.endswith("backward")))
        shares.append(1 - min(exposed) / bucket_s)
        print(f"  {step}: backward {min(backward) * 1e3:.0f}, exposed {exposed[0] * 1e3:.0f} and "
              f"{exposed[1] * 1e3:.0f}, hidden {shares[-1] * 100:.0f} %")
    early = sum(begin < max(end for r, s, n, _, end in work if (r, s) == (0, STEPS - 1) and
                            n.endswith("backward")) for begin, _ in buckets_of(trace, 0))
    if early < 3 * STEPS:
        raise SystemExit(f"only {early} exchanges in {STEPS} steps begin in backward")
    return sum(shares) / len(shares)


def main():
    lplan = os.path.abspath(sys.argv[1])
    sequences = int(sys.argv[2]) if len(sys.argv) > 2 else 16
    if os.geteuid() != 0:
        skip("network namespaces need root")
    for tool in ("ip", "tc", "unshare", "mpirun"):
        if not shutil.which(tool):
            skip(f"no {tool}")
    with tempfile.TemporaryDirectory(prefix="lplan-link-") as name:
        try:
            try:
                link_up()
            except subprocess.CalledProcessError as error:
                skip(f"no namespaces or shaping here: {error.stderr.strip()}")
            said, trace = trace_of(lplan, pathlib.Path(name), sequences)
        finally:
            link_down()
    hidden = judge(said, trace)
    print(f"{hidden * 100:.1f} % of the bucket time is hidden behind backward; wanted {WANTED * 100:.0f} %")
    sys.exit(0 if hidden >= WANTED else 1)


if __name__ == "__main__":
    main()
