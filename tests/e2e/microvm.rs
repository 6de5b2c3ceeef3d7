//! A real guest, with its own kernel and its own network stack.

use std::path::Path;

use anyhow::Context as _;
use causeway::lab::vpp::{self, Vpp};
use causeway::lab::{Lab, run_ok};

use crate::guest::{Guest, Identity, Nic, missing};
use crate::support::{Sandbox, in_lab, network};

const SECRET: &str = "s3cr3t-of-the-guest";

const POLICY: &str = r#"
apiVersion: causeway/v1
kind: Policy
metadata: { name: forge, tenant: acme }
spec:
  selector: {}
  egress:
    - name: api
      to: [api.forge.example]
      http: [{ methods: [GET], paths: ["/**"] }]
  secrets:
    TOKEN:
      hosts: [api.forge.example]
      inject: { header: x-token, format: "{secret}" }
"#;

#[test]
fn a_guest_on_a_tap_has_its_networks_and_the_outside() {
    let name = "microvm::a_guest_on_a_tap_has_its_networks_and_the_outside";
    if let Some(reason) = missing() {
        causeway_testing::skip(name, &reason);
        return;
    }
    in_lab(name, |mut lab| {
        lab.start_agent()?;
        reaches_what_it_may(&lab, "tap:vm1", &Nic::Tap("vm1".to_owned()))
    });
}

#[test]
fn a_guest_by_vhost_user_has_its_networks_and_the_outside() {
    let name = "microvm::a_guest_by_vhost_user_has_its_networks_and_the_outside";
    let installed = match (missing(), vpp::find()) {
        (None, Ok(installed)) => installed,
        (Some(reason), _) | (None, Err(reason)) => {
            causeway_testing::skip(name, &reason);
            return;
        }
    };
    in_lab(name, |mut lab| {
        let vpp = Vpp::start(&installed, Path::new("/run/vpp"))?;
        lab.write_config(&(vpp.section() + "shared_memory = true\n"))?;
        lab.start_agent()?;
        let socket = lab.folder.join("vm.sock");
        let attach = format!("vhost-user:{}", socket.display());
        reaches_what_it_may(&lab, &attach, &Nic::VhostUser(socket))
    });
}

/// The guest pings a member of its network and not another, and calls an outside API with a
/// secret that it does not hold; and it is pinged itself.
fn reaches_what_it_may(lab: &Lab, attach: &str, nic: &Nic) -> anyhow::Result<()> {
    network(lab, "acme", "one")?;
    network(lab, "acme", "two")?;
    let file = lab.folder.join("policy.yaml");
    std::fs::write(&file, POLICY)?;
    run_ok(&mut lab.command(&["policy", "apply", &file.to_string_lossy()]))?;
    let set = lab.causeway_with_input(&["secret", "set", "TOKEN", "--tenant", "acme"], SECRET)?;
    assert!(set.ok(), "{}", set.output());
    let peer = Sandbox::create(lab, "acme", "peer", &["one"], "")?;
    let stranger = Sandbox::create(lab, "acme", "stranger", &["two"], "")?;
    let created = lab.json(&[
        "sandbox",
        "create",
        "vm",
        "--tenant",
        "acme",
        "--network",
        "one",
        "--attach",
        attach,
    ])?;
    let identity = Identity::of(&created)?;

    let folder = lab.folder.join("guest");
    let root = folder.join("root");
    std::fs::create_dir_all(&root)?;
    std::fs::write(root.join("ca.pem"), run_ok(&mut lab.command(&["ca"]))?)?;
    let script = format!(
        "ping -6 -c 3 -W 5 {} > /dev/null; echo peer: $?\n\
         ping -6 -c 1 -W 2 {} > /dev/null; echo stranger: $?\n\
         curl -sS --max-time 30 --cacert /ca.pem -o /dev/null -w '%{{http_code}}' \
           https://api.forge.example/from-the-guest; echo \" api: $?\"\n\
         curl -sS --max-time 5 --cacert /ca.pem https://static.example/; echo \" other: $?\"\n\
         echo ready; while :; do sleep 1; done",
        peer.address, stranger.address
    );
    let mut guest = Guest::boot(&folder, nic, &identity, &script)?;
    let said = guest.await_text("ready")?;
    assert!(said.contains("peer: 0"), "{said}");
    assert!(said.contains("stranger: 1"), "{said}");
    assert!(said.contains("200 api: 0"), "{said}");
    // Its name does not even resolve.
    assert!(said.contains("other: 6"), "{said}");
    assert!(!said.contains(SECRET));

    assert!(peer.pings(identity.address)?);
    assert!(!stranger.pings(identity.address)?);
    let received = lab.received()?;
    let request = received
        .iter()
        .find(|request| request["path"] == "/from-the-guest")
        .context("the request did not arrive")?;
    assert_eq!(request["headers"]["x-token"][0], SECRET);
    assert_eq!(request["peer"], identity.address.to_string());
    Ok(())
}
