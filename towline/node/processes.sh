# Finding and ending the processes of the task. A part of the node script: see towline-node.sh.

# Hundredths of a second: how long a supervisor may take to write the exit code, how long SIGKILL to have its effect.
SUPERVISOR_PATIENCE=500
KILL_PATIENCE=3000

# Reads /proc/PID/stat into state, parent, session and start; fails when there is no such process. The name in it may
# hold anything, also a newline and ") ".
read_stat() {
  stat=
  {
    while IFS= read -r line || [ -n "$line" ]; do
      stat="$stat $line"
    done <"/proc/$1/stat"
  } 2>/dev/null || return 1
  [ -n "$stat" ] || return 1
  set -- ${stat##*") "}
  state=$1 parent=$2 session=$4 start=${20}
}

# Prints the pids of the supervisors that live.
supervisors() {
  for pid_file in "$task"/attempt-*/pid; do
    directory=${pid_file%/pid}
    if read -r pid pid_start _ 2>/dev/null <"$pid_file" && [ ! -e "$directory/exit" ] && same_boot "$directory"; then
      read_stat "$pid" && [ "$start" = "$pid_start" ] && [ "$state" != Z ] && printf '%s ' "$pid"
    fi
  done
}

# Sets `untouchable` and `own_session`: this process, what it descends from, and its session.
spare_caller() {
  untouchable=' 0 1 ' ancestor=$$ own_session=
  while [ "$ancestor" -gt 1 ] && read_stat "$ancestor"; do
    untouchable="$untouchable$ancestor "
    own_session=${own_session:-$session}
    ancestor=$parent
  done
}

# Prints the pids of the processes with the mark in their environment. One pass over all, in which `head` says whose
# each is: a `grep` of these files would be quicker still, but busybox's sees no further than the first variable.
marked() {
  head -v -c 4194304 /proc/[0-9]*/environ 2>/dev/null | tr '\0' '\n' |
    LC_ALL=C grep -F -e '==> /proc/' -e "TOWLINE_MARK=$mark" | while IFS= read -r line; do
    case $line in
      '==> /proc/'*) pid=${line#==> /proc/} ;;
      "TOWLINE_MARK=$mark") printf '%s ' "${pid%%/*}" ;;
    esac
  done
}

# Prints the pids of the task's processes, supervisors ($1) excepted: those with the mark in their environment, what
# descends from them or from a supervisor, and whatever shares a session with one of these.
members() {
  roots=" $1" found=" $(marked)" sessions=" $1" # a supervisor leads the session of its pid
  table=
  for file in /proc/[0-9]*/stat; do
    pid=${file#/proc/} pid=${pid%/stat}
    read_stat "$pid" && [ "$state" != Z ] && [ "$state" != X ] && table="$table$pid:$parent:$session "
  done
  before=
  while [ "$before" != "$found$sessions" ]; do
    before=$found$sessions
    grow_members
  done
  for pid in $found; do
    case "$untouchable$roots" in *" $pid "*) ;; *) printf '%s ' "$pid" ;; esac
  done
}

# One pass over the table, adding to `found` and `sessions`.
grow_members() {
  for entry in $table; do
    pid=${entry%%:*} session=${entry##*:} parent=${entry#*:}
    parent=${parent%:*}
    case "$found$roots" in
      *" $pid "*) ;;
      *" $parent "*) found="$found$pid " ;;
      *) case $sessions in *" $session "*) found="$found$pid " ;; *) continue ;; esac ;;
    esac
    case "$sessions 0 1 $own_session " in *" $session "*) ;; *) sessions="$sessions$session " ;; esac
  done
}

# send SIGNAL PID...: also to processes that only root may signal, where sudo asks for no password.
send() {
  signal=$1
  shift
  for pid in "$@"; do
    kill -s "$signal" "$pid" 2>/dev/null && continue
    [ -d "/proc/$pid" ] && command -v sudo >/dev/null && sudo -n kill -s "$signal" "$pid" >/dev/null 2>&1 </dev/null
  done
  return 0
}

# end_processes GRACE: SIGTERM, at most GRACE, SIGKILL, until twice in a row nothing is left. Supervisors are left to
# write the exit code, since without it the attempt's end is unknown; only one that hangs is killed.
end_processes() {
  for directory in "$task"/attempt-*/; do
    [ -d "$directory" ] && [ ! -e "$directory/exit" ] && : >"$directory/stop"
  done
  spare_caller
  tick
  kill_from=$((clock + $1)) give_up=$((clock + $1 + KILL_PATIENCE)) quiet=0 asked=' ' idle_since=
  while [ "$quiet" -lt 2 ]; do
    overseers=$(supervisors)
    left=$(members "$overseers")
    tick
    if [ -n "$left" ]; then
      quiet=0 idle_since=
      [ "$clock" -lt "$give_up" ] || fail "these processes cannot be killed: $left"
      if [ "$clock" -lt "$kill_from" ]; then
        ask_to_end $left
      else
        send KILL $left
      fi
    elif [ -n "$overseers" ]; then
      quiet=0 idle_since=${idle_since:-$clock}
      send CONT $overseers
      [ "$clock" -lt $((idle_since + SUPERVISOR_PATIENCE)) ] || send KILL $overseers
    else
      quiet=$((quiet + 1))
    fi
    sleep 0.05
  done
}

# SIGTERM once to each; SIGCONT, so that a stopped process gets its grace as well.
ask_to_end() {
  for each in "$@"; do
    case $asked in
      *" $each "*) ;;
      *)
        asked="$asked$each "
        send TERM "$each"
        send CONT "$each"
        ;;
    esac
  done
}
