# How attempts stand. A part of the node script: see towline-node.sh.

fail() {
  printf 'towline-node: %s\n' "$*" >&2
  exit 1
}

begin_answer() { printf '\n%s\n' "$nonce"; }

now() { date -u +%Y-%m-%dT%H:%M:%S+00:00; }

# Sets `clock`, a count of hundredths of a second that never goes back.
tick() {
  read -r clock _ </proc/uptime
  clock=${clock%.*}${clock#*.}
  clock=${clock#0} clock=${clock#0} # a leading zero would mean octal
}

# Prints the numbers of the attempts, in order.
attempts() {
  for directory in "$task"/attempt-*; do
    case ${directory##*/attempt-} in
      *[!0-9]*) ;;
      *) printf '%s\n' "${directory##*/attempt-}" ;;
    esac
  done | sort -n
}

newest_attempt() { attempts | tail -n 1; }

started() { [ -s "$1/pid" ]; }

# Whether nobody holds the lock. The shared probe disturbs neither a waiting client nor another probe.
free() { flock -n -s 4 4<"$1"; }

same_boot() {
  read -r boot 2>/dev/null <"$1/boot" && read -r this_boot </proc/sys/kernel/random/boot_id && [ "$boot" = "$this_boot" ]
}

# Reads how the attempt in DIRECTORY stands into state, phase, code, started_at, ended_at; "-" is "not known".
look_at() {
  state=running phase=run code=- started_at=- ended_at=-
  read -r phase _ 2>/dev/null <"$1/phase"
  read -r _ _ started_at 2>/dev/null <"$1/pid"
  if look_at_exit "$1"; then
    state=ended
  elif started "$1" && free "$1/lock"; then
    if look_at_exit "$1"; then
      state=ended
    elif same_boot "$1"; then
      state=supervisor_killed
    else
      state=rebooted
    fi
  fi
}

look_at_exit() { [ -e "$1/exit" ] && read -r phase code started_at ended_at _ <"$1/exit"; }

report() {
  look_at "$task/attempt-$1"
  printf 'attempt %s %s %s %s %s %s\n' "$1" "$state" "$phase" "$code" "${started_at:--}" "$ended_at"
}
