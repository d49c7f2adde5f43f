"""Debian's slurm-wlm on emulated nodes of this machine, for comparisons. As root.

Everything lives in a temporary folder: munge's key and socket, Slurm's state and ports of their own; nothing that runs
already is touched. Each node has a UTS namespace and so a name of its own, as Squall's nodes have.
"""

import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time

# Below those that the kernel gives out by itself.
FIRST_PORT = 17821
# Where Slurm's commands are: Squall's links may come first in PATH.
CLIENTS = os.environ.get("SLURM_CLIENTS", "/usr/bin")
CONF = """
ClusterName=peer
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort=17817
AuthType=auth/munge
AuthInfo=socket={dir}/munge.sock
CryptoType=crypto/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={dir}/state
SlurmdSpoolDir={dir}/spool.%n
TmpFS={dir}/tmp.%n
SlurmctldPidFile={dir}/slurmctld.pid
SlurmdPidFile={dir}/slurmd.%n.pid
SlurmctldLogFile={dir}/slurmctld.log
SlurmdLogFile={dir}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
ReturnToService=2
SlurmctldDebug=error
SlurmdDebug=error
SlurmdParameters=config_overrides
{accounting}
JobAcctGatherType=jobacct_gather/none
SchedulerParameters=batch_sched_delay=1,sched_min_interval=100000
NodeName=n[1-{nodes}] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first}-{last}] {node} State=UNKNOWN
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP
{extra}
"""
DBD = """
AuthType=auth/munge
AuthInfo=socket={dir}/munge.sock
DbdHost=localhost
DbdPort=17819
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm_acct_db
LogFile={dir}/slurmdbd.log
PidFile={dir}/slurmdbd.pid
"""
ACCOUNTING = """AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
AccountingStoragePort=17819
AccountingStoragePass={dir}/munge.sock"""


class Slurm:
    """A cluster of nodes of this machine, each with a name of its own."""

    def __init__(self, nodes, accounting=False, node="CPUs=4", extra="", gres=""):
        """`accounting`: with slurmdbd on a MariaDB of its own. `node`: what each node has, as on a NodeName line.
        `extra`: further lines of slurm.conf. `gres`: the text of gres.conf."""
        self.nodes, self.accounting, self.node, self.extra, self.gres = nodes, accounting, node, extra, gres
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="squall-peers-"))
        self.children = []

    def start(self, *command):
        out = open(self.dir / f"out.{len(self.children)}", "wb")
        self.children.append(subprocess.Popen(command, stdout=out, stderr=out, env=self.env()))

    def env(self):
        return dict(os.environ, SLURM_CONF=str(self.dir / "slurm.conf"))

    def up(self):
        self.dir.chmod(0o755)
        munge = self.dir / "munge"
        munge.mkdir(mode=0o700)
        (self.dir / "state").mkdir()
        (munge / "key").touch(mode=0o600)
        (munge / "key").write_bytes(os.urandom(128))
        self.start("munged", "--foreground", "--force", f"--key-file={munge}/key", f"--socket={self.dir}/munge.sock",
                   f"--pid-file={munge}/pid", f"--log-file={munge}/log", f"--seed-file={munge}/seed")
        host = socket.gethostname().split(".")[0]
        (self.dir / "slurm.conf").write_text(CONF.format(
            host=host, dir=self.dir, nodes=self.nodes, first=FIRST_PORT, last=FIRST_PORT + self.nodes - 1,
            node=self.node, extra=self.extra,
            accounting=ACCOUNTING.format(dir=self.dir) if self.accounting else "AccountingStorageType=accounting_storage/none"))
        if self.gres:
            (self.dir / "gres.conf").write_text(self.gres)
        time.sleep(1)
        if self.accounting:
            self.database()
        conf = str(self.dir / "slurm.conf")
        self.start("slurmctld", "-D", "-c", "-f", conf)
        for node in range(1, self.nodes + 1):
            (self.dir / f"spool.n{node}").mkdir()
            # What tasks of a node share lies there: nodes of one machine must not meet.
            (self.dir / f"tmp.n{node}").mkdir(mode=0o777)
            self.start("unshare", "--uts", "sh", "-c", f"hostname n{node}; exec slurmd -D -N n{node} -f {conf}")
        for _ in range(150):
            states = subprocess.run([f"{CLIENTS}/sinfo", "-h", "-o", "%T %D"], env=self.env(), capture_output=True, text=True)
            if states.stdout.split() == ["idle", str(self.nodes)]:
                return
            time.sleep(0.2)
        logs = "".join(log.read_text()[-500:] for log in self.dir.glob("*.log"))
        sys.exit(f"Slurm did not come up: {states.stdout}{states.stderr}\n{logs}")

    def database(self):
        """Starts MariaDB and slurmdbd, and names the cluster to it."""
        data, socket_path = self.dir / "mysql", self.dir / "mysql.sock"
        subprocess.run(["mysql_install_db", "--no-defaults", f"--datadir={data}", "--user=root", "--skip-test-db",
                        "--auth-root-authentication-method=socket"], check=True, capture_output=True)
        self.start("mariadbd", "--no-defaults", f"--datadir={data}", f"--socket={socket_path}", "--skip-networking",
                   "--user=root", f"--pid-file={self.dir}/mysql.pid")
        self.wait(lambda: socket_path.exists(), "MariaDB")
        dbd = self.dir / "slurmdbd.conf"
        dbd.write_text(DBD.format(dir=self.dir))
        dbd.chmod(0o600)
        # slurmdbd reads its configuration beside slurm.conf; MYSQL_UNIX_PORT says where the database is.
        self.start("env", f"MYSQL_UNIX_PORT={socket_path}", "slurmdbd", "-D")
        manager = f"{CLIENTS}/sacctmgr"
        self.wait(lambda: subprocess.run([manager, "-n", "show", "cluster"], env=self.env(), capture_output=True).returncode == 0,
                  "slurmdbd")
        subprocess.run([manager, "-i", "add", "cluster", "peer"], env=self.env(), capture_output=True)

    def wait(self, holds, what):
        """Polls for up to 30 s until `holds()`, then gives up on `what`."""
        for _ in range(150):
            if holds():
                return
            time.sleep(0.2)
        sys.exit(f"{what} did not come up; see {self.dir}")

    def run(self, *options):
        """How long a step by `srun` lasts, milliseconds; None: it failed or hung, as Slurm's do here now and then."""
        command = [f"{CLIENTS}/srun", *options]
        start = time.monotonic()
        try:
            done = subprocess.run(command, env=self.env(), capture_output=True, text=True, timeout=60)
        except subprocess.TimeoutExpired:
            print(f"{' '.join(command)}: not done after a minute, cancelled", file=sys.stderr)
            subprocess.run([f"{CLIENTS}/scancel", "--signal=KILL", "--user=root"], env=self.env())
            subprocess.run([f"{CLIENTS}/scancel", "--user=root"], env=self.env())
            return None
        took = (time.monotonic() - start) * 1000
        if done.returncode != 0:
            print(f"{' '.join(command)}: status {done.returncode}\n{done.stderr}", file=sys.stderr)
            return None
        return took

    def down(self):
        for child in self.children:
            child.terminate()
        for child in self.children:
            try:
                child.wait(5)
            except subprocess.TimeoutExpired:
                child.kill()
        shutil.rmtree(self.dir, ignore_errors=True)


def need(*programs):
    """Ends this program with a word on what is missing."""
    missing = [name for name in ("munged", "slurmctld", "slurmd", f"{CLIENTS}/srun", "unshare", *programs)
               if shutil.which(name) is None]
    if missing:
        sys.exit(f"{sys.argv[0]}: missing: {' '.join(missing)} (apt-get install slurmctld slurmd slurm-client munge "
                 "openmpi-bin libopenmpi-dev)")
