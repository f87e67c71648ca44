# What a client waits for. A part of the node script: see towline-node.sh.

# Exit codes that the client knows; any other is a fault.
AGAIN=75 # follow: not all has been read, call again
LEFT=76  # the client went away, so nobody waits for an answer

# From here on this process ends when the client closes its stdin or vanishes, whatever it is waiting for.
listen() {
  left= helpers=
  attend
  exec 3<&0
  (
    trap - USR1 HUP TERM PIPE
    read -r _ <&3
    kill -s USR1 "$$"
  ) >/dev/null 2>&1 &
  ears=$!
}

attend() {
  trap 'hang_up; exit "$LEFT"' USR1 HUP TERM PIPE
  [ -z "$left" ] || { hang_up; exit "$LEFT"; }
}

# Until `attend`: a client that leaves is only noted, so that a helper is never started without being known.
be_busy() { trap 'left=1' USR1 HUP TERM PIPE; }

hang_up() { kill -s KILL "$ears" $helpers 2>/dev/null; }

# await LOCK: until nobody holds it.
await() {
  be_busy
  flock -s "$1" true 3<&- </dev/null >/dev/null 2>&1 &
  helpers=$!
  attend
  wait "$helpers" 2>/dev/null || sleep 0.2
  helpers=
}

await_start() {
  until started "$task/attempt-$1" || [ -e "$task/attempt-$1/exit" ]; do
    [ ! -e "$task/closed" ] || [ -d "$task/attempt-$1" ] || return 1
    sleep 0.2
  done
}

# watch ATTEMPT: "phase ..." lines, and the attempt's state once it has ended.
watch() {
  directory=$task/attempt-$1
  [ -d "$directory" ] || fail "there is no attempt $1"
  begin_answer
  listen
  await_start "$1" || fail "attempt $1 was removed"
  look_at "$directory"
  [ "$state" = running ] && echo "phase $phase"
  if [ "$state" = running ] && [ "$phase" = setup ]; then
    await "$directory/setup.lock"
    look_at "$directory"
    [ "$state" = running ] && echo "phase $phase"
  fi
  while [ "$state" = running ]; do
    [ -d "$directory" ] || fail "attempt $1 was removed"
    await "$directory/lock"
    look_at "$directory"
  done
  report "$1"
  hang_up
}

# next AFTER: the number of the next attempt there is, or "none" once the task is closed.
next() {
  begin_answer
  listen
  while :; do
    if [ -e "$task/closed" ]; then closed=1; else closed=; fi
    for each in $(attempts); do
      if [ "$each" -gt "$1" ]; then
        echo "$each"
        hang_up
        exit 0
      fi
    done
    [ -z "$closed" ] || break
    sleep 0.2
  done
  echo none
  hang_up
}

# follow ATTEMPT OFFSET: the log's bytes from there on. Exit code 0: the attempt has ended and OFFSET is the log's end;
# AGAIN: call again from where you are.
follow() {
  directory=$task/attempt-$1 offset=$2
  begin_answer
  listen
  await_start "$1" || { hang_up; exit 0; }
  look_at "$directory"
  if [ "$state" = running ]; then
    follow_live
  else
    end=$(log_end)
    if [ "$offset" -ge "$end" ]; then
      hang_up
      exit 0
    fi
    tail -c "+$((offset + 1))" "$directory/log" </dev/null | head -c $((end - offset))
  fi
  hang_up
  exit "$AGAIN"
}

# The size of the log when the attempt ended: what leftovers print afterwards is not of the attempt.
log_end() {
  { read -r _ _ _ _ end <"$directory/exit" && [ "${end:--}" != - ]; } 2>/dev/null || end=$(wc -c <"$directory/log")
  echo $((end))
}

follow_live() {
  be_busy
  tail -c "+$((offset + 1))" -f "$directory/log" 3<&- </dev/null 2>/dev/null &
  tail=$!
  flock -s "$directory/lock" sh -c 'kill -s TERM "$1"' sh "$tail" 3<&- </dev/null >/dev/null 2>&1 &
  helpers="$tail $!"
  attend
  wait "$tail" 2>/dev/null
}
