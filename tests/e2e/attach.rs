//! What a sandbox has when its attach returns.

use std::process::Stdio;
use std::time::Duration;

use causeway::lab::{poll, run_ok};

use crate::support::{Sandbox, in_lab, kernel_state, network};

#[test]
fn a_server_binds_its_address_as_soon_as_the_attach_returns() {
    in_lab(
        "attach::a_server_binds_its_address_as_soon_as_the_attach_returns",
        |mut lab| {
            lab.start_agent()?;
            network(&lab, "acme", "one")?;
            for index in 0..10 {
                let sandbox = Sandbox::create(&lab, "acme", &format!("s{index}"), &["one"], "")?;
                // Binding a tentative address fails with EADDRNOTAVAIL.
                let script = format!(
                    "import socket; socket.create_server(('{}', 80), family=socket.AF_INET6)",
                    sandbox.address
                );
                run_ok(sandbox.namespace.command("python3").args(["-c", &script]))?;
            }
            Ok(())
        },
    );
}

#[test]
fn the_inside_has_one_address_one_route_and_no_way_to_hear_advertisements() {
    in_lab(
        "attach::the_inside_has_one_address_one_route_and_no_way_to_hear_advertisements",
        |mut lab| {
            lab.start_agent()?;
            let sandbox = Sandbox::create(&lab, "acme", "one", &[], "")?;
            let inside = |arguments: &str| {
                run_ok(
                    sandbox
                        .namespace
                        .command("ip")
                        .args(arguments.split_whitespace()),
                )
            };
            let addresses = inside("-6 -o addr show dev eth0 scope global")?;
            assert_eq!(addresses.lines().count(), 1, "{addresses}");
            assert!(
                addresses.contains(&format!("{}/128", sandbox.address)),
                "{addresses}"
            );
            assert!(!addresses.contains("tentative"), "{addresses}");
            let routes = inside("-6 route show default")?;
            assert!(
                routes.starts_with("default via fe80::1 dev eth0"),
                "{routes}"
            );
            assert_eq!(routes.lines().count(), 1, "{routes}");
            let neighbours = inside("-6 neigh show fe80::1 dev eth0")?;
            assert!(neighbours.contains("PERMANENT"), "{neighbours}");
            let mut sysctl = sandbox.namespace.command("cat");
            let accept_ra = run_ok(sysctl.arg("/proc/sys/net/ipv6/conf/eth0/accept_ra"))?;
            assert_eq!(accept_ra.trim(), "0");
            Ok(())
        },
    );
}

#[test]
fn a_namespace_that_goes_away_leaves_nothing_after_its_delete() {
    in_lab(
        "attach::a_namespace_that_goes_away_leaves_nothing_after_its_delete",
        |mut lab| {
            lab.start_agent()?;
            network(&lab, "acme", "one")?;
            let stays = Sandbox::create(&lab, "acme", "stays", &["one"], "")?;
            let before = kernel_state()?;
            let goes = Sandbox::create(&lab, "acme", "goes", &["one"], "")?;
            assert!(stays.pings(goes.address)?, "the control: both are there");
            assert_ne!(kernel_state()?, before, "the control: an attach shows");
            run_ok(std::process::Command::new("ip").args(["netns", "del", "goes"]))?;
            run_ok(&mut lab.command(&["sandbox", "delete", "goes", "--tenant", "acme"]))?;
            poll(
                "everything of it to be gone",
                Duration::from_secs(5),
                || Ok((kernel_state()? == before).then_some(())),
            )?;
            assert!(!stays.pings(goes.address)?);
            // A second delete changes nothing and says so.
            let again = lab.causeway(&["sandbox", "delete", "goes", "--tenant", "acme"])?;
            assert!(
                !again.ok() && again.stderr.contains("goes"),
                "{}",
                again.output()
            );
            Ok(())
        },
    );
}

#[test]
fn an_attach_is_durable_before_it_returns() {
    in_lab(
        "attach::an_attach_is_durable_before_it_returns",
        |mut lab| {
            lab.start_agent()?;
            network(&lab, "acme", "one")?;
            let mut sandboxes = Vec::new();
            for index in 0..5 {
                sandboxes.push(Sandbox::create(
                    &lab,
                    "acme",
                    &format!("s{index}"),
                    &["one"],
                    "",
                )?);
                // The very moment after the reply.
                lab.kill_agent()?;
                lab.start_agent()?;
            }
            let listed = lab.json(&["sandbox", "list"])?;
            for sandbox in &sandboxes {
                let found = listed.as_array().is_some_and(|list| {
                    list.iter()
                        .any(|entry| entry["address"] == sandbox.address.to_string())
                });
                assert!(found, "{} is not in {listed}", sandbox.name);
                assert!(sandboxes[0].pings(sandbox.address)?, "{}", sandbox.name);
            }
            Ok(())
        },
    );
}

#[test]
fn the_agent_stops_on_a_signal_and_leaves_forwarding_in_place() {
    in_lab(
        "attach::the_agent_stops_on_a_signal_and_leaves_forwarding_in_place",
        |mut lab| {
            lab.start_agent()?;
            network(&lab, "acme", "one")?;
            let one = Sandbox::create(&lab, "acme", "one", &["one"], "")?;
            let two = Sandbox::create(&lab, "acme", "two", &["one"], "")?;
            let pid = lab.agent_pid()?.to_string();
            let mut kill = std::process::Command::new("kill");
            run_ok(kill.args(["-TERM", &pid]).stdin(Stdio::null()))?;
            lab.await_agent_end()?;
            assert!(one.pings(two.address)?);
            lab.start_agent()?;
            assert_eq!(lab.json(&["reconcile"])?["changes"], 0);
            assert!(one.pings(two.address)?);
            // `down` is what takes it away.
            run_ok(&mut lab.command(&["down"]))?;
            assert!(!one.pings(two.address)?);
            let left = run_ok(std::process::Command::new("ip").args(["netns", "list"]))?;
            assert!(
                !left.lines().any(|line| line.starts_with("causeway")),
                "{left}"
            );
            Ok(())
        },
    );
}
