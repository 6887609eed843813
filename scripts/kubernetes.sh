#!/usr/bin/env bash
# A real Kubernetes on this machine for the tests: built from its Go modules, started as plain processes, gone afterwards.
#
#   scripts/kubernetes.sh build api       the API server; takes minutes when it is not in the cache
#   scripts/kubernetes.sh build node      also controllers, scheduler, kubelet, agent-sandbox and the images of the tests
#   scripts/kubernetes.sh serve api DIR   etcd and the API server until standard input ends; says `ready`
#   scripts/kubernetes.sh serve node DIR  a whole node with containerd (as root)
#
# What is built lies in ${XDG_CACHE_HOME:-~/.cache}/sandstorm/kubernetes. DIR gets the kubeconfigs `admin`, `sandstorm` and
# `nobody`, and the logs. On the node, network policies are kept in namespaces with the label `sandstorm.test/policies: kept`
# and nowhere else, as both kinds of networks exist. Exit codes: 0 fine, 1 something failed, 2 bad usage, 3 not built yet.
set -euo pipefail
cd "$(dirname "$0")/.."

VERSION=1.35.8
# Where the machine's own Go is too old to fetch what the modules ask for.
GO=1.26.8
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/sandstorm/kubernetes/$VERSION
API_PROGRAMS=(kube-apiserver)
NODE_PROGRAMS=(kube-apiserver kubelet kube-controller-manager kube-scheduler)
# The node's own address: a kubelet refuses the loopback.
NODE=10.88.77.1
# One more that looks like a public one: lists may name only such.
PUBLIC=223.255.255.1
# Its bridge, which is also the name of its network and of the table of its policies.
BRIDGE=sandstorm0
# Where the plugins of networks keep what they did.
NOTES=/var/lib/cni/results

usage() {
  sed -n '2,12s/^# \{0,1\}//p' "$0" >&2
  exit 2
}

# Runs something that needs the network, again after a pause when it fails.
retry() {
  local pause
  for pause in 5 20 60; do
    "$@" && return
    echo "kubernetes: trying again in $pause s: $*" >&2
    sleep "$pause"
  done
  "$@"
}

# Go from 1.21 on fetches the version that a module asks for by itself. An older one, such as Debian 12's, is asked to fetch it
# as the module that it is, which is then used in its place.
use_go() {
  local minor arch dir
  if ! command -v go >/dev/null; then
    echo "kubernetes: Go is missing: run scripts/setup.sh k8s" >&2
    exit 1
  fi
  minor=$(go env GOVERSION | sed -n 's/^go1\.\([0-9]*\).*/\1/p')
  [[ ${minor:-0} -lt 21 ]] || return 0
  if [[ ! -x $CACHE/go-$GO/bin/go ]]; then
    arch=$(go env GOARCH)
    echo "kubernetes: fetching Go $GO" >&2
    retry go mod download "golang.org/toolchain@v0.0.1-go$GO.linux-$arch"
    dir=$(go env GOMODCACHE)/golang.org/toolchain@v0.0.1-go$GO.linux-$arch
    rm -rf "$CACHE/go.new"
    cp -r --no-preserve=mode "$dir" "$CACHE/go.new"
    # An older Go does not know that these are programs.
    find "$CACHE/go.new/bin" "$CACHE/go.new/pkg/tool" -type f -exec chmod 755 {} +
    # Nor that a module cannot hold others: theirs have another name in it.
    find "$CACHE/go.new" -name _go.mod -execdir cp _go.mod go.mod \;
    mv "$CACHE/go.new" "$CACHE/go-$GO"
  fi
  export PATH=$CACHE/go-$GO/bin:$PATH GOTOOLCHAIN=local
}

# What a module of tests/kubernetes is made of: what is in the cache is as good as new while this is the same.
stamp() {
  cat "tests/kubernetes/$1/go.mod" "tests/kubernetes/$1/go.sum" | sha256sum
}

# is_built PROGRAM MODULE
is_built() {
  [[ -x $CACHE/bin/$1 && -e $CACHE/bin/$1.sum && $(<"$CACHE/bin/$1.sum") == "$(stamp "$2")" ]]
}

# go_build PROGRAM MODULE PACKAGE LINKER-FLAGS: appears at once and whole, and its stamp after it.
go_build() {
  local program=$1 module=$2 package=$3 flags=$4
  echo "kubernetes: building $program" >&2
  use_go
  (
    cd "tests/kubernetes/$module"
    export CGO_ENABLED=0 GOFLAGS=-buildvcs=false
    # Everything that it needs of the network, and no more than that.
    retry go list -deps "$package" >/dev/null
    go build -mod=readonly -trimpath -o "$CACHE/bin/$program.new" -ldflags "-s -w $flags" "$package"
  )
  rm -f "$CACHE/bin/$program.sum"
  mv "$CACHE/bin/$program.new" "$CACHE/bin/$program"
  stamp "$module" >"$CACHE/bin/$program.sum"
}

build() {
  local programs=("${API_PROGRAMS[@]}") program component
  [[ $1 == node ]] && programs=("${NODE_PROGRAMS[@]}")
  mkdir -p "$CACHE/bin"
  # Two that want the same wait for each other.
  exec 9>"$CACHE/lock"
  flock 9
  component=k8s.io/component-base/version
  for program in "${programs[@]}"; do
    is_built "$program" programs && continue
    go_build "$program" programs "k8s.io/kubernetes/cmd/$program" "\
      -X $component.gitVersion=v$VERSION -X $component.gitMajor=${VERSION%%.*} \
      -X $component.gitMinor=$(cut -d. -f2 <<<"$VERSION") \
      -X k8s.io/client-go/pkg/version.gitVersion=v$VERSION"
  done
  if [[ $1 == node ]]; then
    build_agent_sandbox
    gcc -static -O2 -o "$CACHE/bin/pause" tests/kubernetes/pause.c
    /usr/bin/python3 tests/kubernetes/images.py "$CACHE/images.tar" "$CACHE/bin/pause"
  fi
  flock -u 9
}

# The controller of warm pools, and the definitions of what it serves. Its old version is asked for by nobody here, so that
# there is nothing to convert.
build_agent_sandbox() {
  local program=agent-sandbox-controller source file
  is_built "$program" agent-sandbox && has_definitions && return
  go_build "$program" agent-sandbox "sigs.k8s.io/agent-sandbox/cmd/$program" ""
  source=$(cd tests/kubernetes/agent-sandbox && go list -m -f '{{.Dir}}' sigs.k8s.io/agent-sandbox)
  rm -rf "$CACHE/definitions" "$CACHE/definitions.new"
  mkdir -p "$CACHE/definitions.new"
  for file in "$source"/k8s/crds/*.yaml; do
    sed '/^  conversion:/,$d' "$file" >"$CACHE/definitions.new/$(basename "$file")"
  done
  mv "$CACHE/definitions.new" "$CACHE/definitions"
}

has_definitions() {
  local kind
  for kind in sandboxes sandboxtemplates sandboxwarmpools sandboxclaims; do
    compgen -G "$CACHE/definitions/*_$kind.yaml" >/dev/null || return
  done
}

# Whether everything is there that serving needs.
is_complete() {
  local program
  command -v etcd >/dev/null || return
  if [[ $1 == api ]]; then
    [[ -x $CACHE/bin/kube-apiserver ]]
    return
  fi
  for program in "${NODE_PROGRAMS[@]}" agent-sandbox-controller; do
    [[ -x $CACHE/bin/$program ]] || return
  done
  for program in containerd runc nft ip; do
    command -v "$program" >/dev/null || return
  done
  [[ -s $CACHE/images.tar && -x /usr/lib/cni/bridge ]] && has_definitions
}

# --- serving ---------------------------------------------------------------------------------------------------------------

pids=()
declare -A before=()

# start NAME COMMAND...: in the background, with its log in DIR.
start() {
  local name=$1
  shift
  # The lock of the node is not theirs: one that outlives this script would hold it.
  "$@" >"$dir/$name.log" 2>&1 </dev/null 8>&- &
  pids+=($!)
}

# wait_for WHAT SECONDS COMMAND...
wait_for() {
  local what=$1 tries=$(($2 * 10))
  shift 2
  for _ in $(seq "$tries"); do
    "$@" >/dev/null 2>&1 && return
    sleep 0.1
  done
  echo "kubernetes: $what did not come up; the logs are in $dir" >&2
  tail -n 5 "$dir"/*.log >&2
  exit 1
}

stop() {
  local status=$? index
  trap - EXIT
  # From the last to the first: pods before what holds them.
  if [[ $kind == node ]]; then
    stop_pods
  fi
  for ((index = ${#pids[@]} - 1; index >= 0; index--)); do
    kill "${pids[index]}" 2>/dev/null || true
    wait "${pids[index]}" 2>/dev/null || true
  done
  if [[ $kind == node ]]; then
    remove_traces
  fi
  # After a failure the logs are wanted.
  [[ $status -ne 0 ]] || rm -rf --one-file-system "$dir"
  exit "$status"
}

# Whatever the tests left: a containerd that is killed leaves its containers alone.
stop_pods() {
  local task
  if [[ -n ${kubelet:-} ]]; then
    kill "$kubelet" 2>/dev/null || true
    wait "$kubelet" 2>/dev/null || true
  fi
  for task in $(ctr_here tasks list --quiet 2>/dev/null); do
    ctr_here tasks kill --signal KILL "$task" 2>/dev/null || true
    ctr_here tasks delete --force "$task" >/dev/null 2>&1 || true
  done
}

# What kubelet, containerd and the network's plugins leave on a machine when their pods do not end by themselves.
remove_traces() {
  local mount note space pod
  nft delete table ip "$BRIDGE" 2>/dev/null || true
  # The plugins keep a note for each pod, which names its network.
  for note in "$NOTES/$BRIDGE"-*-eth0; do
    [[ -e $note ]] || continue
    space=$(grep -o 'netns/cni-[0-9a-f-]*' "$note" | head -n 1) || true
    [[ -z $space ]] || ip netns del "${space#netns/}" 2>/dev/null || true
    pod=${note#"$NOTES/$BRIDGE-"}
    rm -f "$note" "$NOTES/cni-loopback-${pod%-eth0}-lo"
  done
  { grep -o " $dir/[^ ]*" /proc/self/mounts || true; } | sort -r | while read -r mount; do umount -l "$mount" || true; done
  ip link del "$BRIDGE" 2>/dev/null || true
  find /sys/fs/cgroup -depth -type d -path '*/kubepods*' -exec rmdir {} + 2>/dev/null || true
  find /var/log/containers -maxdepth 1 -lname "$dir/*" -delete 2>/dev/null || true
  rmdir /var/lib/kubelet/device-plugins /var/lib/kubelet /var/log/containers 2>/dev/null || true
  restore_kernel
}

# What kubelet and the bridge change in the kernel is as before when they are gone.
KERNEL=(vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys
  kernel/keys/root_maxbytes net/ipv4/ip_forward)

remember_kernel() {
  local name
  for name in "${KERNEL[@]}"; do
    [[ -e /proc/sys/$name ]] && before[$name]=$(<"/proc/sys/$name")
  done
  return 0
}

restore_kernel() {
  local name
  for name in "${!before[@]}"; do
    echo "${before[$name]}" >"/proc/sys/$name" 2>/dev/null || true
  done
}

ctr_here() {
  timeout 10 ctr --address "$dir/containerd.sock" --namespace k8s.io "$@"
}

free_ports() {
  /usr/bin/python3 -c '
import socket, sys
held = [socket.create_server(("127.0.0.1", 0)) for _ in range(int(sys.argv[1]))]
print(*(s.getsockname()[1] for s in held))' "$1"
}

# certificate NAME SUBJECT [NAMES]
certificate() {
  openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "$2" \
    -keyout "$dir/pki/$1.key" -out "$dir/pki/$1.csr" 2>/dev/null
  openssl x509 -req -in "$dir/pki/$1.csr" -CA "$dir/pki/ca.crt" -CAkey "$dir/pki/ca.key" -days 2 \
    -extfile <(echo "subjectAltName=${3:-DNS:none}") -out "$dir/pki/$1.crt" 2>/dev/null
}

# kubeconfig NAME: for the user with that certificate.
kubeconfig() {
  cat >"$dir/$1" <<CONFIG
apiVersion: v1
kind: Config
current-context: test
contexts: [{name: test, context: {cluster: test, user: $1}}]
clusters: [{name: test, cluster: {server: "https://127.0.0.1:$api", certificate-authority: $dir/pki/ca.crt}}]
users: [{name: $1, user: {client-certificate: $dir/pki/$1.crt, client-key: $dir/pki/$1.key}}]
CONFIG
}

make_pki() {
  local user
  mkdir -p "$dir/pki"
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=test-ca \
    -keyout "$dir/pki/ca.key" -out "$dir/pki/ca.crt" 2>/dev/null
  openssl genrsa -out "$dir/pki/sa.key" 2048 2>/dev/null
  certificate apiserver /CN=kube-apiserver "DNS:localhost,DNS:kubernetes.default.svc,IP:127.0.0.1,IP:10.0.0.1"
  certificate admin /O=system:masters/CN=admin
  certificate sandstorm /CN=sandstorm
  certificate nobody /CN=nobody
  for user in admin sandstorm nobody; do kubeconfig "$user"; done
}

serve_api() {
  local extra=("$@")
  start etcd etcd --data-dir "$dir/etcd" --listen-client-urls "http://127.0.0.1:$etcd" --advertise-client-urls \
    "http://127.0.0.1:$etcd" --listen-peer-urls "http://127.0.0.1:$peer" --unsafe-no-fsync
  start apiserver "$CACHE/bin/kube-apiserver" --etcd-servers "http://127.0.0.1:$etcd" --bind-address 127.0.0.1 \
    --advertise-address 127.0.0.1 --secure-port "$api" --service-cluster-ip-range 10.0.0.0/24 --endpoint-reconciler-type none \
    --tls-cert-file "$dir/pki/apiserver.crt" --tls-private-key-file "$dir/pki/apiserver.key" \
    --client-ca-file "$dir/pki/ca.crt" --authorization-mode Node,RBAC --service-account-issuer https://test \
    --service-account-key-file "$dir/pki/sa.key" --service-account-signing-key-file "$dir/pki/sa.key" "${extra[@]}"
  wait_for "the API server" 60 asks /readyz
}

# asks PATH [OPTIONS of curl]
asks() {
  local path=$1
  shift
  curl --fail --silent --cacert "$dir/pki/ca.crt" --cert "$dir/pki/admin.crt" --key "$dir/pki/admin.key" \
    "https://127.0.0.1:$api$path" "$@"
}

serve_node() {
  local user name=node
  certificate kubelet "/O=system:nodes/CN=system:node:$name" "DNS:$name,IP:$NODE"
  certificate controllers /CN=system:kube-controller-manager
  certificate scheduler /CN=system:kube-scheduler
  certificate kubelet-client /O=system:masters/CN=kube-apiserver
  for user in kubelet controllers scheduler; do kubeconfig "$user"; done
  # There is one such node on a machine at a time; what one left that was killed goes first.
  exec 8>"$CACHE/node.lock"
  flock --wait 1200 8
  remember_kernel
  remove_traces
  # With an address of its own: else it takes that of some pod, and another one when that is gone, which the others do not know.
  ip link add "$BRIDGE" address 02:53:41:4e:44:31 type bridge
  ip addr add "$NODE/24" dev "$BRIDGE"
  ip addr add "$PUBLIC/32" dev "$BRIDGE"
  ip link set "$BRIDGE" up
  mkdir -p "$dir/cni"
  cat >"$dir/cni/10-bridge.conflist" <<CNI
{"cniVersion": "0.4.0", "name": "$BRIDGE", "plugins": [{"type": "bridge", "bridge": "$BRIDGE", "isGateway": true,
 "hairpinMode": true, "ipam": {"type": "host-local", "dataDir": "$dir/ipam", "ranges": [[{"subnet": "10.88.77.0/24"}]],
 "routes": [{"dst": "0.0.0.0/0"}]}}]}
CNI
  cat >"$dir/containerd.toml" <<CONTAINERD
version = 2
root = "$dir/containerd"
state = "$dir/run"
[grpc]
  address = "$dir/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "docker.io/sandstorm/pause:1"
  # Without the right to lower the score no container would start.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$dir/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
  # A second class for the tests of classes; it isolates no more than the first.
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.other]
    runtime_type = "io.containerd.runc.v2"
CONTAINERD
  start containerd containerd --config "$dir/containerd.toml"
  wait_for containerd 30 ctr_here version
  ctr_here images import "$CACHE/images.tar" >/dev/null
  cat >"$dir/kubelet.yaml" <<KUBELET
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: cgroupfs
containerRuntimeEndpoint: unix://$dir/containerd.sock
authentication: {anonymous: {enabled: false}, webhook: {enabled: false}, x509: {clientCAFile: $dir/pki/ca.crt}}
authorization: {mode: AlwaysAllow}
tlsCertFile: $dir/pki/kubelet.crt
tlsPrivateKeyFile: $dir/pki/kubelet.key
address: $NODE
port: $kubelet_port
healthzPort: 0
# Nothing here needs them, and they would stay.
makeIPTablesUtilChains: false
readOnlyPort: 0
failSwapOn: false
oomScoreAdj: 0
maxOpenFiles: $(ulimit -Hn | sed 's/unlimited/1000000/')
evictionHard: {memory.available: 50Mi, nodefs.available: 1%, imagefs.available: 1%, nodefs.inodesFree: 1%}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
resolvConf: ""
podLogsDir: $dir/pods-logs
KUBELET
  serve_api --kubelet-certificate-authority "$dir/pki/ca.crt" --kubelet-client-certificate "$dir/pki/kubelet-client.crt" \
    --kubelet-client-key "$dir/pki/kubelet-client.key" --kubelet-preferred-address-types InternalIP
  start controllers "$CACHE/bin/kube-controller-manager" --kubeconfig "$dir/controllers" --leader-elect=false \
    --use-service-account-credentials --service-account-private-key-file "$dir/pki/sa.key" --root-ca-file "$dir/pki/ca.crt" \
    --secure-port 0
  start scheduler "$CACHE/bin/kube-scheduler" --kubeconfig "$dir/scheduler" --leader-elect=false --secure-port 0
  start kubelet "$CACHE/bin/kubelet" --config "$dir/kubelet.yaml" --kubeconfig "$dir/kubelet" --hostname-override "$name" \
    --node-ip "$NODE" --root-dir "$dir/kubelet-root"
  kubelet=${pids[-1]}
  wait_for "the node" 120 node_is_ready
  start policies /usr/bin/python3 tests/kubernetes/policies.py "$BRIDGE" "https://127.0.0.1:$api" "$dir/pki/ca.crt" \
    "$dir/pki/admin.crt" "$dir/pki/admin.key"
  serve_agent_sandbox
}

serve_agent_sandbox() {
  local file
  for file in "$CACHE"/definitions/*.yaml; do
    asks /apis/apiextensions.k8s.io/v1/customresourcedefinitions -H "Content-Type: application/yaml" --data-binary "@$file" \
      >/dev/null
  done
  wait_for "warm pools" 30 knows_pools
  start agent-sandbox "$CACHE/bin/agent-sandbox-controller" --kubeconfig "$dir/admin" --leader-elect=false --extensions \
    --enable-webhook=false --metrics-bind-address 0 --health-probe-bind-address 0
}

node_is_ready() {
  asks /api/v1/nodes/node | grep -q '"reason": "KubeletReady"'
}

# Whoever asks what there is has to find all of them: the controller asks once.
knows_pools() {
  local known kind
  known=$(asks /apis -H 'Accept: application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList')
  for kind in sandboxes sandboxtemplates sandboxwarmpools sandboxclaims; do
    grep -q "\"$kind\"" <<<"$known" || return 1
  done
}

serve() {
  kind=$1 dir=$2
  is_complete "$kind" || exit 3
  mkdir -p "$dir"
  trap stop EXIT
  read -r etcd peer api kubelet_port < <(free_ports 4)
  make_pki
  if [[ $kind == node ]]; then
    serve_node
  else
    # Nobody makes service accounts here, and nobody schedules.
    serve_api --disable-admission-plugins ServiceAccount
  fi
  echo ready
  # Whoever started this holds the other end, for as long as it lives.
  cat >/dev/null
}

# Read as a whole before anything is done: the file may change meanwhile.
{
  case ${1:-} in
    build) [[ ${2:-} == api || ${2:-} == node ]] || usage; build "$2" ;;
    serve) [[ (${2:-} == api || ${2:-} == node) && -n ${3:-} ]] || usage; serve "$2" "$3" ;;
    *) usage ;;
  esac
  exit
}
