// The cases for whatever forwarder the file that includes this has chosen.

use std::sync::Arc;

use causeway_dataplane::{Firewall, Ingress, Mtu};

use super::forwarder::MANY;

#[test]
fn members_of_a_network_reach_each_other_and_nobody_else() {
    isolated(concat!(module_path!(), "::members_of_a_network_reach_each_other_and_nobody_else"),
        async || {
            let plane = dataplane().await;
            let specs = [spec(1, &["front"]), spec(2, &["front"]), spec(3, &["back"])];
            for spec in &specs {
                run(&format!("ip netns add {}", spec.id.name));
                plane.attach(spec.clone()).await.unwrap();
            }
            assert!(ping("s1", specs[1].address).success());
            assert!(ping("s2", specs[0].address).success());
            run("ip netns exec s1 ping -c 1 -W 1 fe80::1%eth0");
            assert!(!ping("s1", specs[2].address).success());
            assert!(!ping("s3", specs[0].address).success());

            // Joining the network opens it, quarantine and new ingress rules close it.
            let mut third = specs[2].clone();
            third.networks = specs[0].networks.clone();
            plane.update(vec![third.clone()]).await.unwrap();
            assert!(ping("s1", third.address).success());
            third.quarantined = true;
            plane.update(vec![third.clone()]).await.unwrap();
            assert!(!ping("s1", third.address).success());
            third.quarantined = false;
            plane.update(vec![third.clone()]).await.unwrap();
            assert!(ping("s1", third.address).success());
            third.firewall = Arc::new(Firewall {
                ingress: Ingress::Rules(Vec::new()),
                ..Firewall::default()
            });
            plane.update(vec![third.clone()]).await.unwrap();
            assert!(!ping("s1", third.address).success());
            assert!(ping("s3", specs[0].address).success(), "its own flows stay");

            let counters = plane.counters().await.unwrap();
            assert!(counters.sandboxes[&specs[0].uid].sent_packets > 0);
            let denied = &counters.sandboxes[&specs[0].uid].drops;
            assert!(
                denied.contains_key(&causeway_types::Reason::IngressDenied),
                "{denied:?}"
            );
            assert!(
                denied.contains_key(&causeway_types::Reason::NoSharedNetwork),
                "{denied:?}"
            );
            plane.teardown().await.unwrap();
            assert!(!std::path::Path::new("/run/netns/causeway").exists());
            assert!(!shell("ip netns exec s1 ip link show eth0").status.success());
            plane.teardown().await.unwrap();
        },
    );
}

#[test]
fn an_address_is_usable_at_once_and_the_sandbox_has_nothing_else() {
    isolated(concat!(module_path!(), "::an_address_is_usable_at_once_and_the_sandbox_has_nothing_else"),
        async || {
            let plane = dataplane().await;
            run("ip netns add s1");
            let mut wanted = spec(1, &[]);
            wanted.mtu = Mtu::new(1400).unwrap();
            let attached = plane.attach(wanted.clone()).await.unwrap();
            assert_eq!(attached.mac, wanted.mac());
            let bind = format!(
                "ip netns exec s1 python3 -c \"import socket; \
             socket.socket(socket.AF_INET6).bind(('{}', 80))\"",
                wanted.address
            );
            run(&bind);
            let addresses = run("ip -n s1 -6 addr show dev eth0");
            assert_eq!(addresses.matches("inet6").count(), 2, "{addresses}");
            assert!(!addresses.contains("tentative"), "{addresses}");
            assert!(run("ip -n s1 link show eth0").contains("mtu 1400"));
            assert!(run("ip -n causeway link").contains("mtu 1400"));
            let routes = run("ip -n s1 -6 route");
            assert!(routes.contains("default via fe80::1 dev eth0"), "{routes}");
            assert!(run("ip -n s1 -6 neigh").contains("PERMANENT"));
            assert_eq!(
                run("ip netns exec s1 cat /proc/sys/net/ipv6/conf/eth0/accept_ra").trim(),
                "0"
            );
            plane.detach(wanted.uid).await.unwrap();
            plane.detach(wanted.uid).await.unwrap();
            assert!(!run("ip -n s1 link").contains("eth0"));
            assert!(!run("ip -n causeway link").contains("cw0"));
            assert!(!run("ip -n causeway -6 route").contains("2001:db8"));
            let table = run("ip netns exec causeway nft list table inet causeway");
            assert!(!table.contains("7:101"), "{table}");
        },
    );
}

#[test]
fn many_attach_at_once() {
    isolated(concat!(module_path!(), "::many_attach_at_once"), async || {
        let plane = dataplane().await;
        let mut running = tokio::task::JoinSet::new();
        for n in 1..=MANY {
            run(&format!("ip netns add s{n}"));
        }
        for n in 1..=MANY {
            let plane = plane.clone();
            running.spawn(async move { plane.attach(spec(n, &["front"])).await });
        }
        while let Some(result) = running.join_next().await {
            result.unwrap().unwrap();
        }
        let specs: Vec<_> = (1..=MANY).map(|n| spec(n, &["front"])).collect();
        assert_eq!(plane.reconcile(&desired(&specs)).await.unwrap().changes, 0);
        assert!(ping("s1", specs[usize::from(MANY) - 1].address).success());
        for spec in &specs {
            let plane = plane.clone();
            let uid = spec.uid;
            running.spawn(async move {
                plane.detach(uid).await.unwrap();
                plane.attach(specs_of(uid)).await
            });
        }
        while let Some(result) = running.join_next().await {
            result.unwrap().unwrap();
        }
        assert_eq!(plane.reconcile(&desired(&specs)).await.unwrap().changes, 0);
    });
}

fn specs_of(uid: causeway_types::SandboxUid) -> causeway_dataplane::SandboxSpec {
    spec(u16::try_from(uid.as_u64() - 0x1000).unwrap(), &["front"])
}

