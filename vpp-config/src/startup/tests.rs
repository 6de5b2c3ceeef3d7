use super::*;

fn large() -> Startup {
    Startup {
        sandboxes: 10_000,
        main_core: Some(1),
        worker_cores: vec![2, 3, 18, 19],
        hugepages: Some(HugePages::Gb1),
        dpdk: vec![DpdkDevice {
            pci: "0000:3b:00.0".into(),
            name: Some("uplink".into()),
            rx_queues: 4,
        }],
        plugins: vec!["lcp".into(), "acl".into()],
        plugin_path: Some("/opt/vpp/lib/vpp_plugins".into()),
        group: Some("vpp".into()),
        log: Some("/var/log/vpp.log".into()),
        poll_sleep_usec: Some(100),
        ..Startup::default()
    }
}

#[test]
fn a_node_for_a_first_try() {
    assert_eq!(
        Startup::default().render().unwrap(),
        include_str!("golden/default.conf")
    );
}

#[test]
fn a_node_with_everything() {
    assert_eq!(large().render().unwrap(), include_str!("golden/large.conf"));
}

#[test]
fn braces_are_closed_in_every_shape() {
    for startup in [Startup::default(), large()] {
        let text = startup.render().unwrap();
        let lines = text.lines().map(|line| line.split('#').next().unwrap());
        let mut depth = 0i32;
        for c in lines.flat_map(str::chars) {
            depth += i32::from(c == '{') - i32::from(c == '}');
            assert!(depth >= 0);
        }
        assert_eq!(depth, 0);
        assert!(text.is_ascii());
    }
}

#[test]
fn more_of_anything_never_makes_anything_smaller() {
    let small = Startup::default().sizes();
    for startup in [
        Startup {
            sandboxes: 50_000,
            ..Startup::default()
        },
        Startup {
            workers: 8,
            ..Startup::default()
        },
        Startup {
            sandboxes: u32::MAX,
            workers: u16::MAX,
            ..Startup::default()
        },
        large(),
    ] {
        let sizes = startup.sizes();
        assert!(sizes.heap >= small.heap && sizes.stats >= small.stats);
        assert!(sizes.buffers >= small.buffers);
    }
}

#[test]
fn there_is_room_for_what_each_sandbox_takes() {
    let sizes = large().sizes();
    assert!(sizes.heap > 10_000 * share::HEAP);
    assert!(sizes.stats > 10_000 * share::stats(5));
    assert!(sizes.buffers > 10_000 * share::BUFFERS);
}

#[test]
fn what_vpp_would_read_otherwise_is_refused() {
    type Change = fn(&mut Startup);
    type Check = fn(&StartupError) -> bool;
    let cases: &[(Change, Check)] = &[
        (
            |s| s.group = Some("a } plugins { path /tmp".into()),
            |e| {
                matches!(
                    e,
                    StartupError::Text {
                        field: "the group",
                        ..
                    }
                )
            },
        ),
        (
            |s| s.plugins = vec![String::new()],
            |e| {
                matches!(
                    e,
                    StartupError::Text {
                        field: "a plugin",
                        ..
                    }
                )
            },
        ),
        (
            |s| s.log = Some("/var/log/v#pp".into()),
            |e| matches!(e, StartupError::Text { .. }),
        ),
        (
            |s| s.runtime_dir = "run".into(),
            |e| matches!(e, StartupError::Relative { .. }),
        ),
        (
            |s| s.runtime_dir = format!("/{}", "x".repeat(97)).into(),
            |e| matches!(e, StartupError::SocketPath { len: 109, .. }),
        ),
        (
            |s| s.dpdk[0].pci = "3b:00.0".into(),
            |e| matches!(e, StartupError::Pci { .. }),
        ),
        (
            |s| s.dpdk[0].pci = "0000:3b:00:0".into(),
            |e| matches!(e, StartupError::Pci { .. }),
        ),
        (
            |s| s.worker_cores = vec![2, 1],
            |e| matches!(e, StartupError::Core { core: 1 }),
        ),
        (
            |s| s.workers = 3,
            |e| {
                matches!(
                    e,
                    StartupError::Workers {
                        workers: 3,
                        cores: 4
                    }
                )
            },
        ),
        (
            |s| s.hugepages = None,
            |e| matches!(e, StartupError::HugePages),
        ),
    ];
    for (change, check) in cases {
        let mut startup = large();
        change(&mut startup);
        let error = startup.render().unwrap_err();
        assert!(check(&error), "{error:?}");
    }
}
