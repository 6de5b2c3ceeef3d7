//! A node whose dataplane is VPP: the real command, agent and proxy, and a real VPP.

use std::path::Path;
use std::time::{Duration, Instant};

use causeway::lab::vpp::{self, Vpp};
use causeway::lab::{Lab, poll, run, run_ok};

use crate::support::{Sandbox, in_lab, network};

const SECRET: &str = "s3cr3t-vpp-5b1d0c77";

const POLICY: &str = r"
apiVersion: causeway/v1
kind: Policy
metadata: { name: forge, tenant: acme }
spec:
  selector: {}
  egress:
    - { name: api, to: [api.forge.example], ports: [443] }
  secrets:
    TOKEN:
      hosts: [api.forge.example]
      inject: { header: x-token, format: '{secret}' }
";

/// Runs `body` in a lab with a VPP that the agent is told of, or says why not.
fn on_vpp(name: &str, body: impl FnOnce(Lab, Vpp) -> anyhow::Result<()>) {
    let installed = match vpp::find() {
        Ok(installed) => installed,
        Err(reason) => {
            causeway_testing::skip(name, &reason);
            return;
        }
    };
    in_lab(name, |lab| {
        let vpp = Vpp::start(&installed, Path::new("/run/vpp"))?;
        lab.write_config(&vpp.section())?;
        body(lab, vpp)
    });
}

/// The process of the VPP that listens in `/run/vpp`.
fn listening() -> Option<i32> {
    let runtime = tokio::runtime::Runtime::new().ok()?;
    let socket = Path::new("/run/vpp/api.sock");
    let peer = runtime.block_on(vpp_config::connection::PeerProcess::listening(socket));
    peer.map(|process| process.pid)
}

#[test]
fn the_agent_starts_vpp_and_finds_it_again() {
    let name = "vpp::the_agent_starts_vpp_and_finds_it_again";
    on_vpp(name, |mut lab, mut vpp| {
        // Its configuration is all that is wanted of this one.
        vpp.kill()?;
        let program = &vpp.installed().program;
        let section = format!(
            "supervise = true\nprogram = \"{}\"\nstartup = \"/run/vpp/startup.conf\"\n",
            program.display()
        );
        lab.write_config(&(vpp.section() + &section))?;
        lab.start_agent()?;
        network(&lab, "acme", "front")?;
        let one = Sandbox::create(&lab, "acme", "one", &["front"], "")?;
        let two = Sandbox::create(&lab, "acme", "two", &["front"], "")?;
        assert!(one.pings(two.address)?);
        let first = listening();

        lab.kill_agent()?;
        assert!(one.pings(two.address)?);
        lab.start_agent()?;
        assert_eq!(listening(), first);
        assert_eq!(lab.json(&["reconcile"])?["changes"], 0);

        let pid = first.unwrap_or_default().to_string();
        run_ok(std::process::Command::new("kill").args(["-KILL", &pid]))?;
        poll("another VPP", Duration::from_secs(60), || {
            Ok(listening().filter(|pid| Some(*pid) != first))
        })?;
        poll("everything to be back", Duration::from_secs(60), || {
            Ok(one.pings(two.address)?.then_some(()))
        })?;
        run_ok(&mut lab.command(&["down"]))?;
        assert_eq!(listening(), None);
        Ok(())
    });
}

/// What a sandbox's request to the outside came to.
fn fetch(lab: &Lab, sandbox: &Sandbox, url: &str) -> anyhow::Result<causeway::lab::Finished> {
    let ca = lab.folder.join("ca.pem");
    std::fs::write(&ca, run_ok(&mut lab.command(&["ca"]))?)?;
    let mut curl = sandbox.namespace.command("curl");
    run(curl
        .args(["-sS", "--max-time", "10", "--cacert"])
        .arg(&ca)
        .arg(url))
}

#[test]
fn networks_and_egress_with_a_secret_work_on_vpp_and_survive_its_end() {
    on_vpp(
        "vpp::networks_and_egress_with_a_secret_work_on_vpp_and_survive_its_end",
        |mut lab, mut vpp| {
            lab.start_agent()?;
            assert_eq!(lab.json(&["status"])?["backend"], "vpp");
            network(&lab, "acme", "front")?;
            network(&lab, "acme", "back")?;
            let file = lab.folder.join("policy.yaml");
            std::fs::write(&file, POLICY)?;
            run_ok(&mut lab.command(&["policy", "apply", &file.to_string_lossy()]))?;
            let set =
                lab.causeway_with_input(&["secret", "set", "TOKEN", "--tenant", "acme"], SECRET)?;
            assert!(set.ok(), "{}", set.output());
            let one = Sandbox::create(&lab, "acme", "one", &["front"], "")?;
            let two = Sandbox::create(&lab, "acme", "two", &["front"], "")?;
            let other = Sandbox::create(&lab, "acme", "other", &["back"], "")?;
            let holds = |lab: &Lab| -> anyhow::Result<()> {
                assert!(one.pings(two.address)?);
                assert!(!one.pings(other.address)?);
                let used = fetch(lab, &one, "https://api.forge.example/used")?;
                assert!(used.ok(), "{}", used.output());
                assert!(!used.stdout.contains(SECRET), "{}", used.output());
                poll("the upstream's account", Duration::from_secs(5), || {
                    let received = lab.received()?;
                    let used =
                        |request: &serde_json::Value| request["headers"]["x-token"][0] == SECRET;
                    Ok(received.last().is_some_and(used).then_some(()))
                })?;
                let refused = fetch(lab, &one, "https://other.example/")?;
                assert!(!refused.ok(), "{}", refused.output());
                Ok(())
            };
            holds(&lab)?;
            assert_eq!(lab.json(&["reconcile"])?["changes"], 0);

            // The agent goes and comes: VPP forwards meanwhile, and has nothing to be changed.
            lab.kill_agent()?;
            assert!(one.pings(two.address)?);
            lab.start_agent()?;
            assert_eq!(lab.json(&["reconcile"])?["changes"], 0);
            holds(&lab)?;

            // VPP goes and comes: the agent notices by itself.
            vpp.kill()?;
            poll("the agent to notice", Duration::from_secs(20), || {
                let status = lab.json(&["status"])?;
                Ok((status["health"] != "ok").then_some(()))
            })?;
            vpp.restart()?;
            let begun = Instant::now();
            poll("everything to be back", Duration::from_secs(30), || {
                Ok(one.pings(two.address)?.then_some(()))
            })?;
            println!("back after {:?}", begun.elapsed());
            lab.await_ready()?;
            holds(&lab)?;
            assert_eq!(lab.json(&["reconcile"])?["changes"], 0);

            // Quarantine reaches what VPP carries by itself.
            run_ok(&mut lab.command(&["sandbox", "quarantine", "two", "--tenant", "acme"]))?;
            assert!(!one.pings(two.address)?);
            run_ok(&mut lab.command(&["sandbox", "release", "two", "--tenant", "acme"]))?;
            assert!(one.pings(two.address)?);
            run_ok(&mut lab.command(&["down"]))?;
            assert!(!one.pings(two.address)?);
            let left = vpp.console("show mode")?;
            assert!(!left.contains("host-"), "{left}");
            Ok(())
        },
    );
}
