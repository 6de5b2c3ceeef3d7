//! The kernel backend against a real kernel, with real packets.

#[cfg(test)]
mod common;
#[cfg(test)]
#[path = "kernel.rs"]
mod forwarder;
#[cfg(test)]
mod tap;
#[cfg(test)]
mod uplink;

use std::time::{Duration, Instant};

use causeway_dataplane::facade::AttachError;
use causeway_dataplane::kernel::KernelBackend;
use causeway_dataplane::{Attachment, Backend, BackendError};
use common::{config, dataplane, desired, isolated, ping, run, spec};

#[cfg(test)]
mod cases {
    use super::common::*;

    include!("cases.rs");
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
