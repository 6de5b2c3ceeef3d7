//! The kernel backend against a real kernel, with real packets.

#[cfg(test)]
mod common;
#[cfg(test)]
mod tap;
#[cfg(test)]
#[cfg(test)]
mod uplink;

use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_dataplane::facade::AttachError;
use causeway_dataplane::kernel::KernelBackend;
use causeway_dataplane::{Attachment, Backend, BackendError, Firewall, Ingress, Mtu};
use common::{config, dataplane, desired, isolated, ping, run, shell, spec};

#[test]
fn members_of_a_network_reach_each_other_and_nobody_else() {
    isolated(
        "members_of_a_network_reach_each_other_and_nobody_else",
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
    isolated(
        "an_address_is_usable_at_once_and_the_sandbox_has_nothing_else",
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
fn bad_requests_have_typed_errors_and_leave_nothing() {
    isolated(
        "bad_requests_have_typed_errors_and_leave_nothing",
        async || {
            let plane = dataplane().await;
            let links = || run("ip -n causeway -o link | wc -l");
            let before = links();
            let port = |result| match result {
                Err(AttachError::Port { source, .. }) => source,
                other => panic!("{other:?}"),
            };
            let missing = port(plane.attach(spec(1, &[])).await);
            assert!(
                matches!(missing, BackendError::NamespaceMissing { .. }),
                "{missing:?}"
            );

            run("touch /run/netns/s1");
            let file = port(plane.attach(spec(1, &[])).await);
            assert!(
                matches!(file, BackendError::NotANamespace { .. }),
                "{file:?}"
            );
            run("rm /run/netns/s1; ip netns add s1");

            let mut router = spec(2, &[]);
            router.attachment = Attachment::Netns {
                path: "/run/netns/causeway".into(),
                interface: causeway_dataplane::InterfaceName::default(),
            };
            let router = port(plane.attach(router).await);
            assert!(
                matches!(router, BackendError::ReservedNamespace { .. }),
                "{router:?}"
            );

            run("ip -n s1 link add eth0 type veth peer name other");
            let taken = port(plane.attach(spec(1, &[])).await);
            assert!(
                matches!(taken, BackendError::InterfaceExists { .. }),
                "{taken:?}"
            );
            run("ip -n s1 link del eth0");

            let mut memif = spec(1, &[]);
            memif.attachment = Attachment::Memif {
                socket: "/x".into(),
            };
            let unsupported = port(plane.attach(memif).await);
            assert!(matches!(
                unsupported,
                BackendError::UnsupportedAttachment { .. }
            ));

            // A default route that is in the way: everything made until then is unwound.
            run("ip -n s1 link set lo up");
            run("ip -n s1 -6 route add default dev lo");
            let route = port(plane.attach(spec(1, &[])).await);
            assert!(matches!(route, BackendError::Netlink { .. }), "{route:?}");
            run("ip -n s1 -6 route del default dev lo");
            assert_eq!(links(), before);
            assert!(!run("ip -n s1 link").contains("eth0"));

            plane.attach(spec(1, &[])).await.unwrap();
            plane.attach(spec(1, &[])).await.unwrap();
            let twice = plane.attach(spec(1, &["other"])).await;
            assert!(
                matches!(twice, Err(AttachError::AlreadyAttached { .. })),
                "{twice:?}"
            );
            let mut second = spec(2, &[]);
            second.address = spec(1, &[]).address;
            let address = plane.attach(second).await;
            assert!(
                matches!(address, Err(AttachError::AddressInUse { .. })),
                "{address:?}"
            );
        },
    );
}

#[test]
fn reconciling_repairs_and_then_finds_nothing() {
    isolated("reconciling_repairs_and_then_finds_nothing", async || {
        let plane = dataplane().await;
        let specs: Vec<_> = (1..=4).map(|n| spec(n, &["front"])).collect();
        for spec in &specs {
            run(&format!("ip netns add {}", spec.id.name));
        }
        let wanted = desired(&specs);
        let report = plane.reconcile(&wanted).await.unwrap();
        assert!(
            report.changes > 0 && report.problems.is_empty(),
            "{report:?}"
        );
        assert_eq!(plane.reconcile(&wanted).await.unwrap().changes, 0);
        assert!(ping("s1", specs[1].address).success());

        // Another process takes over, and changes nothing.
        let plane = dataplane().await;
        assert_eq!(plane.reconcile(&wanted).await.unwrap().changes, 0);

        // Damage of every kind.
        run("ip -n causeway link del cw000000001001");
        run("ip -n causeway -6 route del 2001:db8:1::7:102");
        run("ip -n causeway -6 neigh flush nud permanent dev cw000000001003");
        run("ip netns exec causeway nft flush set inet causeway sources");
        run("ip netns add s9");
        let mut foreign = spec(9, &[]);
        foreign.networks.clear();
        let other = dataplane().await;
        other.attach(foreign).await.unwrap();
        let report = plane.reconcile(&wanted).await.unwrap();
        assert!(
            report.changes >= 5 && report.problems.is_empty(),
            "{report:?}"
        );
        let again = plane.reconcile(&wanted).await.unwrap();
        assert_eq!(again.changes, 0, "{again:?}");
        for spec in &specs[1..] {
            assert!(ping("s1", spec.address).success());
        }
        assert!(!run("ip -n causeway link").contains("cw000000001009"));

        // The packet filter is gone.
        run("ip netns exec causeway nft delete table inet causeway");
        let report = plane.reconcile(&wanted).await.unwrap();
        assert!(
            report.changes > 0 && report.problems.is_empty(),
            "{report:?}"
        );
        assert_eq!(plane.reconcile(&wanted).await.unwrap().changes, 0);
        assert!(ping("s1", specs[3].address).success());

        // A namespace is gone: the others stay, and it is a problem.
        run("ip netns del s2");
        let gone = |text: &str| !run("ip -n causeway link").contains(text);
        let deadline = Instant::now() + Duration::from_secs(10);
        while !gone("cw000000001002") {
            assert!(Instant::now() < deadline, "the kernel removes the pair");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let report = plane.reconcile(&wanted).await.unwrap();
        assert_eq!(report.problems.len(), 1, "{report:?}");
        assert!(ping("s1", specs[3].address).success());
    });
}

#[test]
fn a_port_that_was_not_finished_is_made_anew() {
    isolated("a_port_that_was_not_finished_is_made_anew", async || {
        let plane = dataplane().await;
        let specs = [spec(1, &["front"]), spec(2, &["front"])];
        for spec in &specs {
            run(&format!("ip netns add {}", spec.id.name));
        }
        let wanted = desired(&specs);
        // What a process leaves that dies after each of an attach's steps.
        let leftovers = [
            "ip -n causeway link add cw000000001001 type veth peer name eth0 netns s1",
            "ip -n causeway -6 addr add fe80::1/128 dev cw000000001001 nodad",
            "ip -n causeway link set cw000000001001 up",
            "ip -n s1 link set eth0 up",
        ];
        for count in 1..=leftovers.len() {
            for line in &leftovers[..count] {
                run(line);
            }
            let report = plane.reconcile(&wanted).await.unwrap();
            assert!(report.problems.is_empty(), "{count}: {report:?}");
            assert_eq!(plane.reconcile(&wanted).await.unwrap().changes, 0);
            assert!(ping("s1", specs[1].address).success());
            plane.detach(specs[0].uid).await.unwrap();
        }
    });
}

#[test]
fn many_attach_at_once() {
    isolated("many_attach_at_once", async || {
        let plane = dataplane().await;
        let mut running = tokio::task::JoinSet::new();
        for n in 1..=64 {
            run(&format!("ip netns add s{n}"));
        }
        for n in 1..=64 {
            let plane = plane.clone();
            running.spawn(async move { plane.attach(spec(n, &["front"])).await });
        }
        while let Some(result) = running.join_next().await {
            result.unwrap().unwrap();
        }
        let specs: Vec<_> = (1..=64).map(|n| spec(n, &["front"])).collect();
        assert_eq!(plane.reconcile(&desired(&specs)).await.unwrap().changes, 0);
        assert!(ping("s1", specs[63].address).success());
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

#[cfg(test)]
fn specs_of(uid: causeway_types::SandboxUid) -> causeway_dataplane::SandboxSpec {
    spec(u16::try_from(uid.as_u64() - 0x1000).unwrap(), &["front"])
}

#[test]
fn without_privileges_the_error_says_so() {
    isolated("without_privileges_the_error_says_so", async || {
        let backend = KernelBackend::new(config());
        backend.setup().await.unwrap();
        backend.teardown().await.unwrap();
        // The same without privileges, which this process then lacks until its end.
        nix::unistd::setresuid(65534.into(), 65534.into(), 65534.into()).unwrap();
        let error = backend.setup().await.unwrap_err();
        assert!(
            matches!(error, BackendError::Permission { .. }),
            "{error:?}"
        );
    });
}

#[test]
fn a_missing_nft_is_named() {
    isolated("a_missing_nft_is_named", async || {
        run("mount -t tmpfs tmpfs /usr/sbin");
        let error = KernelBackend::new(config()).setup().await.unwrap_err();
        assert!(
            matches!(error, BackendError::ProgramMissing { program: "nft", .. }),
            "{error:?}"
        );
    });
}
