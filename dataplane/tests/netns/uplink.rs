//! The way to the outside, with a namespace for the Internet.

use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_dataplane::kernel::{KernelConfig, Translation, Uplink};
use causeway_dataplane::{
    EgressRule, Firewall, InterfaceName, PortRange, Ports, Protocol, SandboxSpec,
};

use super::common::{config, isolated, open, run, shell, spec};

/// `inet` holds `2600:1::1` and 198.51.100.1 behind the interface `wan` of this namespace.
fn internet() {
    for line in [
        "ip netns add inet",
        "ip link add wan type veth peer name lan index 77 netns inet",
        "ip addr add 2600:2::2/64 dev wan nodad; ip link set wan up",
        "ip addr add 198.51.100.2/24 dev wan",
        "ip -n inet link set lo up; ip -n inet link set lan up",
        "ip -n inet addr add 2600:2::1/64 dev lan nodad",
        "ip -n inet addr add 2600:1::1/128 dev lo nodad",
        "ip -n inet addr add 198.51.100.1/24 dev lan",
        "ip -6 route add default via 2600:2::1",
    ] {
        run(line);
    }
}

fn may_ping_outside(n: u16) -> SandboxSpec {
    let mut spec = spec(n, &[]);
    spec.firewall = Arc::new(Firewall {
        egress: vec![EgressRule {
            prefixes: vec!["2600:1::/32".parse().unwrap()],
            ports: Ports::Only(vec![PortRange::whole(Protocol::Icmpv6)]),
        }],
        ..Firewall::default()
    });
    spec
}

fn pings(namespace: &str, to: &str) -> bool {
    shell(&format!("ip netns exec {namespace} ping -c 1 -W 1 {to}"))
        .status
        .success()
}

/// The first packets on a new uplink wait for neighbour discovery on several links.
fn reaches(namespace: &str, to: &str) -> bool {
    let deadline = Instant::now() + Duration::from_secs(8);
    while Instant::now() < deadline {
        if pings(namespace, to) {
            return true;
        }
    }
    false
}

#[test]
fn through_the_host_with_masquerade() {
    isolated("uplink::through_the_host_with_masquerade", async || {
        internet();
        run("sysctl -qw net.ipv6.conf.wan.accept_ra=1");
        let config = KernelConfig {
            uplink: Uplink::Host {
                translation: Translation::Masquerade,
            },
            ..config()
        };
        let plane = open(config.clone()).await;
        assert_eq!(run("cat /proc/sys/net/ipv6/conf/wan/accept_ra").trim(), "2");
        run("ip netns add s1; ip netns add s2");
        plane.attach(may_ping_outside(1)).await.unwrap();
        plane.attach(spec(2, &[])).await.unwrap();
        assert!(reaches("s1", "2600:1::1"));
        assert!(!pings("s2", "2600:1::1"));
        assert!(reaches("causeway", "198.51.100.1"), "the proxy's IPv4 leg");
        assert!(reaches("causeway", "2600:1::1"), "the proxy's own address");
        assert!(
            !pings("causeway", "fd63:6175:7365:1::1"),
            "the host is protected"
        );
        assert!(
            !pings("causeway", "198.51.100.2"),
            "under each of its addresses"
        );

        // A second process finds it as it is.
        let again = open(config.clone()).await;
        assert!(reaches("s1", "2600:1::1"));
        again.teardown().await.unwrap();
        assert!(!shell("ip link show cw-host").status.success());
        assert!(!run("nft list tables").contains("causeway"));
        again.teardown().await.unwrap();
    });
}

#[test]
fn through_the_host_routed() {
    isolated("uplink::through_the_host_routed", async || {
        internet();
        run("ip -n inet -6 route add 2001:db8:1::/48 via 2600:2::2");
        let config = KernelConfig {
            uplink: Uplink::Host {
                translation: Translation::Routed,
            },
            ..config()
        };
        let plane = open(config).await;
        run("ip netns add s1");
        plane.attach(may_ping_outside(1)).await.unwrap();
        assert!(reaches("s1", "2600:1::1"));
        // What arrives carries the sandbox's own address.
        run("ip netns exec inet nft add table ip6 t");
        run("ip netns exec inet nft 'add chain ip6 t c { type filter hook input priority 0; }'");
        run("ip netns exec inet nft 'add rule ip6 t c ip6 saddr 2001:db8:1::/48 drop'");
        assert!(!pings("s1", "2600:1::1"));
        plane.teardown().await.unwrap();
    });
}

#[test]
fn over_a_given_interface_that_comes_back() {
    isolated(
        "uplink::over_a_given_interface_that_comes_back",
        async || {
            internet();
            run("ip -n inet -6 route add 2001:db8:1::/48 via 2600:2::2");
            let config = KernelConfig {
                uplink: Uplink::Interface {
                    name: InterfaceName::new("wan").unwrap(),
                    addresses: vec!["2600:2::2/64".parse().unwrap()],
                    gateways: vec!["2600:2::1".parse().unwrap()],
                },
                ..config()
            };
            let plane = open(config.clone()).await;
            assert!(!shell("ip link show wan").status.success());
            run("ip netns add s1");
            plane.attach(may_ping_outside(1)).await.unwrap();
            assert!(reaches("s1", "2600:1::1"));
            open(config.clone()).await;
            plane.teardown().await.unwrap();
            run("ip link show wan");
            let missing = KernelConfig {
                uplink: Uplink::Interface {
                    name: InterfaceName::new("nothing").unwrap(),
                    addresses: Vec::new(),
                    gateways: Vec::new(),
                },
                ..config
            };
            let backend = causeway_dataplane::kernel::KernelBackend::new(missing);
            let error = causeway_dataplane::Backend::setup(&backend)
                .await
                .unwrap_err();
            assert!(error.to_string().contains("nothing"), "{error}");
        },
    );
}
