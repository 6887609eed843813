"""Keeps the network policies of the test node, as the networks of real clusters do: the bridge by itself knows none.

    policies.py TABLE SERVER CA CERTIFICATE KEY

Only in namespaces with the label `sandstorm.test/policies: kept`, so that the tests have both kinds of networks. It knows as
much of policies as Sandstorm's need, and ends with an error when it meets more: a policy is kept or it is not, never a part.
"""

import contextlib
import http.client
import ipaddress
import json
import ssl
import subprocess
import sys
import threading

KEPT = {"sandstorm.test/policies": "kept"}
FAMILIES = {"TCP": "tcp", "UDP": "udp"}


class Cluster:
    def __init__(self, server, ca, certificate, key):
        self.host = server.removeprefix("https://")
        self.tls = ssl.create_default_context(cafile=ca)
        self.tls.load_cert_chain(certificate, key)

    def ask(self, path):
        connection = http.client.HTTPSConnection(self.host, context=self.tls)
        connection.request("GET", path)
        answer = connection.getresponse()
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.status} {answer.read()[:500]!r}")
        return connection, answer

    def list(self, path):
        connection, answer = self.ask(path)
        with contextlib.closing(connection):
            return json.load(answer)["items"]

    def follow(self, path, changed):
        """Says that something changed, whenever it does."""
        while True:
            connection, answer = self.ask(f"{path}?watch=1&timeoutSeconds=300")
            with contextlib.closing(connection):
                changed.set()
                while answer.readline():
                    changed.set()


def selects(selector, labels):
    if set(selector) - {"matchLabels"}:
        raise RuntimeError(f"a selector that is not known here: {selector}")
    return selector.get("matchLabels", {}).items() <= labels.items()


def egress_rules(address, rule):
    """What one rule of a policy lets a pod reach."""
    if set(rule) - {"to", "ports"}:
        raise RuntimeError(f"a rule that is not known here: {rule}")
    targets = []
    for target in rule.get("to", [{"ipBlock": {"cidr": "0.0.0.0/0"}}]):
        if set(target) != {"ipBlock"}:
            raise RuntimeError(f"a target that is not known here: {target}")
        block = target["ipBlock"]
        if ipaddress.ip_network(block["cidr"]).version == 4:
            without = ", ".join(block.get("except", []))
            targets.append(f"ip daddr {block['cidr']}" + (f" ip daddr != {{ {without} }}" if without else ""))
    ports = [f"{FAMILIES[port.get('protocol', 'TCP')]} dport {port['port']}" for port in rule.get("ports", [])]
    for target in targets:
        for port in ports or [""]:
            yield f"ip saddr {address} {target} {port} accept"


def rules(policies, pods):
    out, into = [], []
    for pod in pods:
        address = pod.get("status", {}).get("podIP")
        if not address or pod["spec"].get("hostNetwork") or pod["status"].get("phase") in ("Failed", "Succeeded"):
            continue
        labels = pod["metadata"].get("labels", {})
        for_pod = [
            policy["spec"]
            for policy in policies
            if policy["metadata"]["namespace"] == pod["metadata"]["namespace"]
            and selects(policy["spec"]["podSelector"], labels)
        ]
        if any("Egress" in policy["policyTypes"] for policy in for_pod):
            for policy in for_pod:
                for rule in policy.get("egress", []):
                    out += egress_rules(address, rule)
            out.append(f"ip saddr {address} drop")
        if any("Ingress" in policy["policyTypes"] for policy in for_pod):
            if any(policy.get("ingress") for policy in for_pod):
                raise RuntimeError("who may come in is not known here")
            into.append(f"ip daddr {address} drop")
    return out, into


def table(name, out, into):
    chains = "".join(
        f"chain {chain} {{ type filter hook prerouting priority {priority}; ct state established,related accept\n"
        + "\n".join(lines)
        + "\n}\n"
        # Behind the tracking of connections, which is at -200.
        for chain, priority, lines in [("out", -150, out), ("into", -149, into)]
    )
    return f"add table ip {name}\ndelete table ip {name}\ntable ip {name} {{\n{chains}}}\n"


def follow(cluster, path, changed, failed):
    try:
        cluster.follow(path, changed)
    except Exception as error:  # Whatever it is, policies are not kept from here on.
        failed.append(error)
        changed.set()


def main():
    name, *way = sys.argv[1:]
    cluster = Cluster(*way)
    changed, failed, last = threading.Event(), [], None
    policies, pods = "/apis/networking.k8s.io/v1/networkpolicies", "/api/v1/pods"
    for path in (policies, pods):
        threading.Thread(target=follow, args=(cluster, path, changed, failed), daemon=True).start()
    while True:
        changed.wait()
        changed.clear()
        if failed:
            raise failed[0]
        kept = {
            namespace["metadata"]["name"]
            for namespace in cluster.list("/api/v1/namespaces")
            if KEPT.items() <= namespace["metadata"].get("labels", {}).items()
        }
        of_kept = [
            [item for item in cluster.list(path) if item["metadata"]["namespace"] in kept] for path in (policies, pods)
        ]
        text = table(name, *rules(*of_kept))
        if text != last:
            subprocess.run(["nft", "-f", "-"], input=text, text=True, check=True)
            last = text


main()
