#!/bin/bash
# The machines on which a page of the book runs: each has namespaces of its own, and all are on one bridge.
#
# Usage, as root: machines.sh SCRATCH HOST...
# SCRATCH holds the binary `squall`, and maybe `share/`, a tree that is copied over the root of each machine. A line
# `HOST PID` on standard output says that a machine is ready; commands enter it with nsenter. All ends with the end of
# standard input.
#
# The root of a machine is an overlay of this machine's root, in memory: nothing that a page writes stays. /home is the
# same on all machines of a page, as over NFS. Users: root, alice (1001), bob (1002).
set -eu
scratch=$1
shift

# Makes a control group for each machine and starts the other stages in namespaces. Ends them, and removes the groups.
outside() {
  groups=$(mktemp -d)
  mount -t cgroup2 book "$groups" 2> /dev/null || true
  own=$groups$(sed -n 's/^0:://p' /proc/self/cgroup)/squall-book-$$
  mkdir -p "$own"
  STAGE=wire GROUPS_OF=$own unshare --mount --pid --net --fork --kill-child bash "$0" "$scratch" "$@" < /dev/null &
  cat > /dev/null
  { kill -KILL $!; wait $! || true; } 2> /dev/null
  for try in 1 2 3 4 5 6 7 8 9 10; do
    find "$own" -depth -type d -exec rmdir {} + 2> /dev/null && break
    sleep 0.2
  done
  umount "$groups" 2> /dev/null || true
  rmdir "$groups"
}

# Makes what the machines share: /home, the bridge, the table of addresses. Plugs each machine in when it asks.
wire() {
  mount --make-rprivate /
  mount -t tmpfs -o mode=755 book /mnt
  mkdir -p /mnt/home/alice /mnt/home/bob
  chown 1001:1001 /mnt/home/alice
  chown 1002:1002 /mnt/home/bob
  ip link add book type bridge
  ip link set book up
  printf '127.0.0.1 localhost\n::1 localhost\n' > /mnt/hosts
  number=0
  for host; do
    number=$((number + 1))
    echo "10.77.0.$number $host" >> /mnt/hosts
    mkfifo "/mnt/$host.asks" "/mnt/$host.plugged"
    mkdir -p "$GROUPS_OF/$host"
    (
      echo "$BASHPID" > "$GROUPS_OF/$host/cgroup.procs" || true
      STAGE=machine MACHINE=$host exec unshare --mount --pid --net --uts --ipc --cgroup --fork --kill-child \
        bash "$0" "$scratch"
    ) &
  done
  number=0
  for host; do
    number=$((number + 1))
    read -r pid < "/mnt/$host.asks"
    ip link add name "port$number" type veth peer name eth0 netns "$pid"
    ip link set "port$number" master book up
    echo yes > "/mnt/$host.plugged"
  done
  wait
}

# Makes the root of a machine and becomes its process 1, which waits for processes whose parents have ended.
machine() {
  # The number of this process here is not yet hidden by a /proc of its own; `wire` knows it by the last but one.
  read -r outer _ < /proc/self/stat
  inner=$(sed -n "s/^NSpid:.*\t\([0-9]*\)\t[0-9]*$/\1/p" "/proc/$outer/status")
  hostname "$MACHINE"
  root=/mnt/$MACHINE
  mkdir "$root" "$root.upper" "$root.work"
  mount -t overlay -o "lowerdir=/,upperdir=$root.upper,workdir=$root.work" book "$root"
  cd "$root"
  rm -rf var/lib/squall etc/squall
  mkdir -p tmp run root home
  mount --rbind /dev dev
  mount -t tmpfs -o mode=1777 book dev/shm
  mount -t tmpfs -o mode=1777 book tmp
  mount -t tmpfs -o mode=755 book run
  mount -t tmpfs -o mode=700 book root
  mount --bind /mnt/home home
  mount -t proc book proc
  mount -t sysfs book sys
  mount -t cgroup2 book sys/fs/cgroup 2> /dev/null || mount -t tmpfs book sys/fs/cgroup
  mkdir sys/fs/cgroup/login
  echo $$ > sys/fs/cgroup/login/cgroup.procs || true
  users='alice:x:1001:1001:Alice:/home/alice:/bin/bash\nbob:x:1002:1002:Bob:/home/bob:/bin/bash'
  groups='alice:x:1001:\nbob:x:1002:'
  { echo -e "$users"; grep -vE '^(alice|bob):' /etc/passwd; } > etc/passwd
  { echo -e "$groups"; grep -vE '^(alice|bob):' /etc/group; } > etc/group
  echo "$MACHINE" > etc/hostname
  cat /mnt/hosts > etc/hosts
  if [ -d "$scratch/share" ]; then
    cp -rT "$scratch/share" .
  fi
  rm -f usr/local/bin/squall
  touch usr/local/bin/squall
  mount --bind "$scratch/squall" usr/local/bin/squall
  chroot . usr/local/bin/squall links /usr/local/bin > /dev/null
  echo "$inner" > "/mnt/$MACHINE.asks"
  read -r _ < "/mnt/$MACHINE.plugged"
  address=$(sed -n "s/ $MACHINE\$//p" /mnt/hosts)
  ip link set lo up
  ip address add "$address/24" dev eth0
  ip link set eth0 up
  exec chroot . /bin/bash -c 'echo "$@"; exec > /dev/null 2>&1; while :; do sleep 86400 & wait; done' init "$MACHINE" "$outer"
}

case ${STAGE:-outside} in
  outside) outside "$@" ;;
  wire) wire "$@" ;;
  machine) machine ;;
esac
