//! Bad input gets an error that helps, and changes nothing.

use std::process::Command;
use std::time::Duration;

use causeway::lab::{Finished, Lab, poll, run, run_ok};

use crate::support::{Sandbox, causeway_binary, in_lab, kernel_state, network};

/// The command failed with status 1, said all of `words`, and nothing changed.
fn refused(lab: &Lab, arguments: &[&str], words: &[&str]) -> anyhow::Result<()> {
    let before = state(lab)?;
    let finished = lab.causeway(arguments)?;
    said(arguments, &finished, words);
    assert_eq!(state(lab)?, before, "{arguments:?} changed something");
    Ok(())
}

fn said(arguments: &[&str], finished: &Finished, words: &[&str]) {
    assert_eq!(
        finished.status.code(),
        Some(1),
        "{arguments:?}: {}",
        finished.output()
    );
    for word in words {
        assert!(
            finished.stderr.contains(word),
            "{arguments:?} lacks {word:?}: {}",
            finished.stderr
        );
    }
}

/// Everything that the agent and the kernel hold, but for what counts up by itself.
fn state(lab: &Lab) -> anyhow::Result<String> {
    let mut all = kernel_state()?;
    for arguments in [
        ["sandbox", "list"],
        ["network", "list"],
        ["policy", "list"],
        ["leases", "list"],
    ] {
        all.push_str(&lab.json(&arguments)?.to_string());
    }
    all.push_str(
        &lab.json(&["secret", "list", "--tenant", "acme"])?
            .to_string(),
    );
    Ok(all)
}

#[test]
fn names_attachments_and_duplicates() {
    in_lab("bad_input::names_attachments_and_duplicates", |mut lab| {
        lab.start_agent()?;
        network(&lab, "acme", "one")?;
        let good = Sandbox::create(&lab, "acme", "good", &["one"], "")?;
        let path = format!("netns:{}", good.namespace.path().display());
        lab.namespace("spare")?;
        let create = |name: &'static str, attach: &'static str| {
            vec![
                "sandbox", "create", name, "--tenant", "acme", "--attach", attach,
            ]
        };
        refused(
            &lab,
            &create("x", "netns:/run/netns/nowhere"),
            &["/run/netns/nowhere"],
        )?;
        refused(
            &lab,
            &create("x", "netns:/etc/hostname"),
            &["/etc/hostname", "namespace"],
        )?;
        refused(
            &lab,
            &create("good", "netns:/run/netns/spare"),
            &["acme/good", "exists"],
        )?;
        let twice = [
            "sandbox", "create", "x", "--tenant", "acme", "--attach", &path,
        ];
        refused(&lab, &twice, &["eth0"])?;
        let unknown = [
            "sandbox",
            "create",
            "x",
            "--tenant",
            "acme",
            "--network",
            "none",
            "--attach",
            "netns:/run/netns/spare",
        ];
        refused(&lab, &unknown, &["none"])?;
        refused(
            &lab,
            &["network", "create", "one", "--tenant", "acme"],
            &["acme/one", "exists"],
        )?;
        refused(
            &lab,
            &["network", "delete", "one", "--tenant", "acme"],
            &["acme/one", "good"],
        )?;
        refused(
            &lab,
            &["sandbox", "delete", "nobody", "--tenant", "acme"],
            &["acme/nobody"],
        )?;
        refused(&lab, &create("x", "vhost-user:/tmp/x"), &["vpp"])?;
        refused(&lab, &create("x", "tap:cw-up"), &["cw-up"])?;

        // Wrong usage is status 2, before anything is asked of the agent.
        for arguments in [
            &[
                "sandbox",
                "create",
                "Bad_Name",
                "--tenant",
                "acme",
                "--attach",
                "netns:/run/netns/spare",
            ][..],
            &[
                "sandbox",
                "create",
                "x",
                "--tenant",
                "acme",
                "--attach",
                "wormhole:7",
            ],
            &["sandbox", "create", "x", "--tenant", "acme"],
            &["nonsense"],
        ] {
            assert_eq!(
                lab.causeway(arguments)?.status.code(),
                Some(2),
                "{arguments:?}"
            );
        }
        // The control: the spare namespace was good all along.
        run_ok(&mut lab.command(&create("x", "netns:/run/netns/spare")))?;
        Ok(())
    });
}

#[test]
fn policy_files() {
    in_lab("bad_input::policy_files", |mut lab| {
        lab.start_agent()?;
        Sandbox::create(&lab, "acme", "one", &[], "")?;
        let good = "apiVersion: causeway/v1\nkind: Policy\nmetadata: { name: p, tenant: acme }\n\
            spec:\n  selector: {}\n  egress:\n    - { name: a, to: [a.example] }\n";
        let huge = format!("{good}# {}\n", "x".repeat(5 << 20));
        let cases = [
            (
                "syntax",
                good.replace("[a.example]", "[a.example"),
                "bad.yaml:7",
            ),
            ("unknown key", good.replace("egress:", "egres:"), "egres"),
            (
                "duplicate key",
                good.replace("  selector: {}\n", "  selector: {}\n  selector: {}\n"),
                "selector",
            ),
            (
                "bad name",
                good.replace("a.example", "a..example"),
                "a..example",
            ),
            (
                "port 0",
                good.replace("to: [a.example]", "to: [a.example], ports: [0]"),
                "ports",
            ),
            (
                "port 65536",
                good.replace("to: [a.example]", "to: [a.example], ports: [65536]"),
                "65536",
            ),
            (
                "version",
                good.replace("causeway/v1", "causeway/v9"),
                "causeway/v9",
            ),
            ("too large", huge, "4"),
            ("empty", String::new(), ""),
        ];
        let file = lab.folder.join("bad.yaml");
        let path = file.to_string_lossy().into_owned();
        for (case, text, word) in cases {
            std::fs::write(&file, text)?;
            refused(&lab, &["policy", "apply", &path], &[word])
                .unwrap_or_else(|error| panic!("{case}: {error:?}"));
            refused(&lab, &["policy", "check", &path], &[word])?;
        }
        refused(
            &lab,
            &["policy", "apply", "/nowhere.yaml"],
            &["/nowhere.yaml"],
        )?;
        refused(
            &lab,
            &["policy", "delete", "p", "--tenant", "acme"],
            &["acme/p"],
        )?;
        // The control.
        std::fs::write(&file, good)?;
        run_ok(&mut lab.command(&["policy", "check", &path]))?;
        run_ok(&mut lab.command(&["policy", "apply", &path]))?;
        Ok(())
    });
}

#[test]
fn an_exhausted_prefix_is_named() {
    in_lab("bad_input::an_exhausted_prefix_is_named", |mut lab| {
        lab.write_config("node_block = \"3ffe:ca05:1::/126\"")?;
        lab.start_agent()?;
        let mut created = 0;
        let last = loop {
            let name = format!("s{created}");
            lab.namespace(&name)?;
            let attach = format!("netns:/run/netns/{name}");
            let arguments = [
                "sandbox", "create", &name, "--tenant", "acme", "--attach", &attach,
            ];
            let before = state(&lab)?;
            let finished = lab.causeway(&arguments)?;
            if !finished.ok() {
                assert_eq!(state(&lab)?, before);
                break finished;
            }
            created += 1;
            assert!(created <= 4, "a /126 has four addresses");
        };
        assert!(created >= 2, "{created} created, then: {}", last.output());
        assert!(last.stderr.contains("3ffe:ca05:1::/126"), "{}", last.stderr);
        Ok(())
    });
}

#[test]
fn stores_that_cannot_be_used_are_left_alone() {
    in_lab(
        "bad_input::stores_that_cannot_be_used_are_left_alone",
        |mut lab| {
            lab.start_agent()?;
            Sandbox::create(&lab, "acme", "one", &[], "")?;
            lab.kill_agent()?;
            let store = lab.folder.join("state/causeway.redb");
            let good = std::fs::read(&store)?;
            let config = lab.config();
            let up = || {
                run(Command::new(causeway_binary())
                    .arg("up")
                    .arg("--config")
                    .arg(&config))
            };

            let mut corrupt = good.clone();
            corrupt.truncate(corrupt.len() / 3);
            for byte in corrupt.iter_mut().take(64) {
                *byte = !*byte;
            }
            std::fs::write(&store, &corrupt)?;
            let finished = up()?;
            said(&["up"], &finished, &["causeway.redb"]);
            assert_eq!(std::fs::read(&store)?, corrupt, "the store was touched");

            // The control: the good one works, with what it had.
            std::fs::write(&store, &good)?;
            lab.start_agent()?;
            assert_eq!(lab.json(&["sandbox", "list"])?.as_array().unwrap().len(), 1);
            Ok(())
        },
    );
}

#[test]
fn a_second_agent_a_missing_program_and_no_privileges() {
    in_lab(
        "bad_input::a_second_agent_a_missing_program_and_no_privileges",
        |mut lab| {
            let up = |command: &mut Command, lab: &Lab| {
                run(command.args(["up", "--config"]).arg(lab.config()))
            };
            // A search path without nft.
            let bin = lab.folder.join("bin");
            std::fs::create_dir(&bin)?;
            let finished = up(Command::new(causeway_binary()).env("PATH", &bin), &lab)?;
            said(&["up"], &finished, &["nft", "nftables"]);
            // No capabilities.
            let mut unprivileged = Command::new("setpriv");
            unprivileged.args(["--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]);
            unprivileged.arg(causeway_binary());
            let finished = up(&mut unprivileged, &lab)?;
            said(&["up"], &finished, &["CAP_"]);
            // A socket path that somebody else listens on, then a second agent.
            lab.start_agent()?;
            let finished = up(&mut Command::new(causeway_binary()), &lab)?;
            let pid = lab.agent_pid()?.to_string();
            said(&["up"], &finished, &["already", &pid]);
            assert_eq!(lab.json(&["status"])?["health"], "ok", "the first goes on");
            // Nobody listens.
            lab.kill_agent()?;
            let finished = lab.causeway(&["status"])?;
            said(&["status"], &finished, &["causeway.sock", "causeway up"]);
            Ok(())
        },
    );
}

#[test]
fn configuration_files() {
    in_lab("bad_input::configuration_files", |mut lab| {
        let up = |lab: &Lab| {
            run(Command::new(causeway_binary())
                .args(["up", "--config"])
                .arg(lab.config()))
        };
        for (line, word) in [
            ("prefx = 1", "prefx"),
            ("lease_quarantine_secs = -1", "lease_quarantine_secs"),
            ("node_block = \"2001:db8::/64\"", "2001:db8::/64"),
        ] {
            lab.write_config(line)?;
            said(&["up"], &up(&lab)?, &[word]);
            assert!(
                !lab.folder.join("state").exists(),
                "{line} made a state folder"
            );
        }
        std::fs::remove_file(lab.config())?;
        said(&["up"], &up(&lab)?, &["causeway.toml"]);
        // The control.
        lab.write_config("")?;
        lab.start_agent()
    });
}

#[test]
fn a_port_in_use_is_named_and_taken_once_it_is_free() {
    in_lab(
        "bad_input::a_port_in_use_is_named_and_taken_once_it_is_free",
        |mut lab| {
            // Somebody else made the router's namespace and sits on the proxy's port there.
            run_ok(Command::new("ip").args(["netns", "add", "causeway"]))?;
            let mark = lab.folder.join("squats");
            let script = "import socket, sys, time; \
            s = socket.create_server(('::', 15001), family=socket.AF_INET6); \
            open(sys.argv[1], 'w').close(); time.sleep(600)";
            let mut squatter = Command::new("nsenter")
                .args(["--net=/run/netns/causeway", "python3", "-c", script])
                .arg(&mark)
                .stdin(std::process::Stdio::null())
                .spawn()?;
            poll("the squatter to listen", Duration::from_secs(10), || {
                Ok(mark.exists().then_some(()))
            })?;
            lab.spawn_agent()?;
            let problem = poll("the problem to show", Duration::from_secs(20), || {
                let status = lab.json(&["status"])?;
                let text = status["problems"].to_string();
                Ok((status["health"] == "degraded" && text.contains("15001")).then_some(text))
            })?;
            assert!(problem.contains("in use"), "{problem}");
            // What does not need the proxy works meanwhile, and egress is denied.
            network(&lab, "acme", "one")?;
            let one = Sandbox::create(&lab, "acme", "one", &["one"], "")?;
            let two = Sandbox::create(&lab, "acme", "two", &["one"], "")?;
            assert!(one.pings(two.address)?);
            // The control.
            squatter.kill()?;
            squatter.wait()?;
            lab.await_ready()
        },
    );
}
