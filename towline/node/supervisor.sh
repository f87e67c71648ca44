# Launching an attempt, and the supervisor that runs it. A part of the node script: see towline-node.sh.

# Hundredths of a second.
LEFTOVERS_GRACE=200 # how long the processes of an ended attempt may take to end before the next one starts
LAST_WORDS=100      # how long an attempt's end waits for processes that may still write what it printed

lock_launching() {
  mkdir -p "$task" || fail "cannot create $task"
  exec 7>"$task/launch.lock" || fail "cannot write to $task"
  flock 7 || fail "cannot lock $task/launch.lock"
}

require_tools() {
  for tool in bash flock setsid tar; do
    command -v "$tool" >/dev/null || fail "the node lacks $tool; install it in the image"
  done
}

# ensure ATTEMPT, a tar with setup, run, env, secrets and end on stdin: start the attempt, or attach to it.
ensure() {
  require_tools
  lock_launching
  newest=$(newest_attempt)
  if [ -e "$task/closed" ]; then
    answer=closed
  elif [ "${newest:-0}" -gt "$1" ]; then
    answer=superseded
  else
    started "$task/attempt-$1" || launch "$1"
    answer=$(report "$1")
  fi
  begin_answer
  printf '%s\n' "$answer"
}

# Everything that is read of the payload becomes visible with one rename; an attempt that was never started is made
# anew, since after a crash of the node nobody knows which of its bytes reached the disk.
launch() {
  [ -z "$newest" ] || end_processes "$LEFTOVERS_GRACE" # before the first attempt there is nothing to look for
  remove_secrets
  part=$task/attempt-$1.part
  rm -rf "$part" && mkdir "$part" && tar -xf - -C "$part" || fail "cannot unpack attempt $1"
  rm "$part/end" || fail "attempt $1 arrived incomplete"
  check_printf "$part"
  make_files "$part" || fail "cannot write to $part"
  rm -rf "$task/attempt-$1" && mv -T "$part" "$task/attempt-$1" || fail "cannot rename $part"
  start_supervisor "$1"
}

# One that is a program would have the secrets on its command line.
check_printf() {
  if [ -e "$1/secrets" ] && [ "$(command -v printf)" != printf ]; then
    rm -f "$1/secrets"
    fail "this node's sh has no printf of its own, so it cannot be given secrets; install dash, bash or busybox"
  fi
}

# `exit.part` and `phase` are written in full now and overwritten in place later, which works on a full disk too.
make_files() {
  : >"$1/log" && : >"$1/output" && : >"$1/lock" && : >"$1/setup.lock" && printf '%99s\n' '' >"$1/exit.part" || return
  if [ -e "$1/setup" ]; then
    echo setup >"$1/phase"
  else
    echo 'run  ' >"$1/phase"
  fi
}

# Returns once the supervisor can be attached to. Job control (which only bash has without a terminal) because a plain
# `&` would have the user's processes ignore SIGINT. The supervisor inherits launch.lock until then: whatever happens to
# this process meanwhile, the next `ensure` waits for the supervisor and finds it. No rc file: under SSH bash reads it
# for every `-c`, and the login shell already has.
start_supervisor() {
  said=$(bash --norc -c 'set -m; "$@" &' bash setsid sh "$0" "$nonce" supervise "$key" "$index" "$1" "$users_umask" </dev/null)
  [ "$said" = started ] || fail "the supervisor of attempt $1 did not start"
}

# --- the supervisor -------------------------------------------------------------------------------------------------

# supervise ATTEMPT UMASK: run the attempt, in a session of its own.
supervise() {
  directory=$task/attempt-$1 users_umask=$2
  # Caught and not ignored, because children inherit what is ignored. A stop is for the user's processes; who
  # records their end survives it.
  trap : HUP INT QUIT TERM PIPE ALRM USR1 USR2
  exec 9<>"$directory/lock" 8<>"$directory/setup.lock" || exit 1
  flock 9 && flock 8 || exit 1
  started "$directory" && exit 1
  take_secrets || exit 1
  record_start || exit 1
  remove_secrets
  echo started
  exec >/dev/null 2>&1 7>&-
  run_phases
  await_last_words
  until record_exit; do sleep 1; done
}

# From here on the secrets are in this process's memory alone. A shell variable is neither in its command line nor in
# its environment; each script gets them through a pipe. (A here-document is a file in some shells, and a disk may be
# full.)
take_secrets() {
  secrets=
  [ ! -e "$directory/secrets" ] || secrets=$(cat "$directory/secrets")
}

# Whatever a crash left behind, too.
remove_secrets() { rm -f "$task"/attempt-*/secrets; }

record_start() {
  started_at=$(now)
  read_stat "$$" && cat /proc/sys/kernel/random/boot_id >"$directory/boot" &&
    echo "$$ $start $started_at" >"$directory/pid.part" && mv -T "$directory/pid.part" "$directory/pid"
}

run_phases() {
  phase=setup code=0
  if [ -e "$directory/setup" ]; then
    run_script setup
  fi
  if [ "$code" -eq 0 ] && [ -e "$directory/run" ]; then
    phase=run
    echo 'run  ' 1<>"$directory/phase"
    exec 8<&-
    run_script run
  fi
}

# run_script NAME: as a child in the foreground, whose exit code no signal to this shell can hide; sets `code`. In a
# session of its own, so that its `kill -9 0` reaches itself and not its supervisor.
run_script() {
  if [ -e "$directory/stop" ]; then
    code=143 # as if SIGTERM had come a moment later
    return
  fi
  if [ -z "$secrets" ]; then
    (become "$1") </dev/null
  else
    { exec 9<&- 8<&- && printf '%s\n' "$secrets"; } | become "$1"
  fi
  code=$?
}

# become NAME, with the secrets on stdin, if there are any. Called in a process of its own.
become() {
  exec 3<&0 9<&- 8<&- </dev/null >>"$directory/log" 2>&1
  umask "$users_umask"
  mkdir -p "$HOME/sky_workdir" && cd "$HOME/sky_workdir" || exit 1
  [ -e "$HOME/towline_workdir" ] || [ -L "$HOME/towline_workdir" ] || ln -s sky_workdir "$HOME/towline_workdir"
  export "TOWLINE_MARK=$mark" "TOWLINE_OUTPUT=$directory/output" PYTHONUNBUFFERED=1
  exec setsid bash --norc -c "$become_script" bash "$mark" "$directory/env" "$directory/$1" "$(command -v bash)"
}

# The environment is read by bash. What it treats as a number or computes itself is first made an ordinary variable; one
# that it keeps for itself (UID, say) it reports, and goes on.
become_script='
  unset -v OPTIND RANDOM SRANDOM SECONDS EPOCHSECONDS LINENO HISTCMD BASHPID BASH_SUBSHELL BASH_ARGV0 2>/dev/null
  [ ! -e "$2" ] || . "$2" 2>/dev/null
  . /proc/self/fd/3 2>/dev/null
  exec 3<&-
  export "TOWLINE_MARK=$1"
  exec "$4" "$3"'

# `exec > >(tee file)` leaves a tee behind that is about to write the last lines; a daemon is not waited for long.
await_last_words() {
  tick
  deadline=$((clock + LAST_WORDS))
  spare_caller
  while [ "$clock" -lt "$deadline" ] && [ -n "$(members "")" ]; do
    sleep 0.02
    tick
  done
}

record_exit() {
  size=$(wc -c <"$directory/log") &&
    echo "$phase $code $started_at $(now) $((size))" 1<>"$directory/exit.part" &&
    mv -T "$directory/exit.part" "$directory/exit"
}
