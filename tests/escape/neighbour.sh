# The one who is attacked: leaves its mark wherever a neighbour could look. Argument: the mark.
mark=$1
echo "$mark" > /workspace/mark; echo "$mark" > /tmp/mark; echo "$mark" > /dev/shm/mark; echo "$mark" > "$HOME/mark"
chmod -R a+rX /tmp /workspace "$HOME"
exec python3 - "$mark" <<'PYTHON'
import socket, sys, time
mark = sys.argv[1]
shared = socket.socket(socket.AF_UNIX)
shared.bind("\0" + mark)
shared.listen()
print("ready", flush=True)
time.sleep(60)
PYTHON
