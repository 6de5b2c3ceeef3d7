//! Agent and proxy are killed again and again, at random moments, under load.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use causeway::lab::internet::address_of;
use causeway::lab::{Lab, poll, run, run_ok};

use crate::support::{Sandbox, in_lab, network};

const KILLS: usize = 200;

const POLICY: &str = "
apiVersion: causeway/v1
kind: Policy
metadata: { name: web, tenant: acme }
spec:
  selector: { role: agent }
  egress:
    - { name: static, to: [static.example], ports: [443] }
";

#[test]
fn two_hundred_kills_lose_no_lease_stall_no_flow_and_open_nothing() {
    in_lab(
        "chaos::two_hundred_kills_lose_no_lease_stall_no_flow_and_open_nothing",
        |mut lab| {
            lab.start_agent()?;
            network(&lab, "acme", "one")?;
            let file = lab.folder.join("policy.yaml");
            std::fs::write(&file, POLICY)?;
            run_ok(&mut lab.command(&["policy", "apply", &file.to_string_lossy()]))?;
            let one = Sandbox::create(&lab, "acme", "one", &["one"], "role=agent")?;
            let two = Sandbox::create(&lab, "acme", "two", &["one"], "")?;
            let flow = Flow::start(&lab, &one, &two)?;

            let stop = AtomicBool::new(false);
            // What was acknowledged: name → address, as long as the delete was not.
            let acknowledged = Mutex::new(BTreeMap::new());
            let creations = AtomicUsize::new(0);
            // Which of agent and proxy die is decided here; the rest of the lab is shared.
            let commands = Commands::of(&lab);
            thread::scope(|scope| {
                scope.spawn(|| churn(&commands, &stop, &acknowledged, &creations));
                scope.spawn(|| knock(&one, &stop));
                let killed = kill_at_random(&mut lab);
                stop.store(true, Ordering::Relaxed);
                killed
            })?;

            lab.await_ready()?;
            lab.json(&["reconcile"])?;
            assert_eq!(
                lab.json(&["reconcile"])?["changes"],
                0,
                "the second pass finds nothing"
            );
            let creations = creations.into_inner();
            assert!(
                creations >= 20,
                "too little load: {creations} sandboxes were created"
            );
            check_leases(&lab, &acknowledged.into_inner().unwrap())?;
            flow.check()?;
            let intruder = format!("[{}]", address_of("intruder.example").unwrap());
            for request in lab.received()? {
                let server = request["server"].as_str().unwrap_or_default().to_owned();
                assert!(
                    !server.starts_with(&intruder),
                    "something got through: {request}"
                );
            }
            // The control: what is permitted works at the end.
            let mut curl = one.namespace.command("curl");
            curl.args(["-sSk", "--max-time", "10", "https://static.example/after"]);
            assert!(run_ok(&mut curl)?.contains("/after"));
            Ok(())
        },
    );
}

/// Creates and deletes sandboxes; calls fail whenever the agent is away.
fn churn(
    commands: &Commands,
    stop: &AtomicBool,
    acknowledged: &Mutex<BTreeMap<String, String>>,
    creations: &AtomicUsize,
) {
    let mut index = 0;
    while !stop.load(Ordering::Relaxed) {
        let name = format!("c{index}");
        index += 1;
        run_ok(Command::new("ip").args(["netns", "add", &name])).unwrap();
        let attach = format!("netns:/run/netns/{name}");
        let created = run(&mut commands.causeway(&[
            "--json",
            "sandbox",
            "create",
            &name,
            "--tenant",
            "acme",
            "--network",
            "one",
            "--attach",
            &attach,
        ]))
        .unwrap();
        if created.ok() {
            let reply: serde_json::Value = serde_json::from_str(&created.stdout).unwrap();
            creations.fetch_add(1, Ordering::Relaxed);
            let address = reply["address"].as_str().unwrap().to_owned();
            acknowledged.lock().unwrap().insert(name.clone(), address);
        }
        if index % 2 == 0 {
            // Before the call: once it was asked for, it may be gone with or without a reply.
            acknowledged.lock().unwrap().remove(&name);
            let arguments = ["sandbox", "delete", &name, "--tenant", "acme"];
            run(&mut commands.causeway(&arguments)).unwrap();
        }
        // A crash of the agent may leave a half-made sandbox behind, so the agent is not asked
        // to create the same name again.
    }
}

/// Tries what is never permitted: an address that no rule opens, with and without a name.
fn knock(from: &Sandbox, stop: &AtomicBool) {
    let intruder = address_of("intruder.example").unwrap();
    let pin = format!("static.example:443:[{intruder}]");
    while !stop.load(Ordering::Relaxed) {
        for arguments in [
            [
                "-sSk",
                "--max-time",
                "1",
                "--resolve",
                &pin,
                "https://static.example/knock",
            ],
            [
                "-sSk",
                "--max-time",
                "1",
                "-H",
                "x: y",
                &format!("http://[{intruder}]/knock"),
            ],
        ] {
            run(from.namespace.command("curl").args(arguments)).unwrap();
        }
    }
}

fn kill_at_random(lab: &mut Lab) -> anyhow::Result<()> {
    // The seed is fixed: the moments still differ, since the machine's pace does.
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    for round in 0..KILLS {
        thread::sleep(Duration::from_millis(random.below(400)));
        if random.below(2) == 0 {
            lab.kill_agent()?;
            thread::sleep(Duration::from_millis(random.below(60)));
            lab.spawn_agent()?;
        } else if let Some(pid) = proxy_pid() {
            // It may have ended in between.
            run(Command::new("kill").args(["-9", &pid]))?;
        }
        if round % 20 == 19 {
            lab.await_ready()?;
        }
    }
    Ok(())
}

fn proxy_pid() -> Option<String> {
    let found = run(Command::new("pgrep").args(["-f", "causeway egress"])).ok()?;
    found.stdout.lines().next().map(ToOwned::to_owned)
}

/// Every acknowledged sandbox holds its lease, and no address is held twice.
fn check_leases(lab: &Lab, acknowledged: &BTreeMap<String, String>) -> anyhow::Result<()> {
    let leases = lab.json(&["leases", "list"])?;
    let bound: Vec<_> = leases
        .as_array()
        .unwrap()
        .iter()
        .filter(|lease| lease["state"] == "bound")
        .map(|lease| lease["address"].as_str().unwrap().to_owned())
        .collect();
    let distinct: BTreeSet<_> = bound.iter().collect();
    assert_eq!(
        distinct.len(),
        bound.len(),
        "an address is held twice: {bound:?}"
    );
    for (name, address) in acknowledged {
        assert!(
            distinct.contains(address),
            "{name} lost its lease {address}"
        );
        let shown = lab.json(&["sandbox", "show", name, "--tenant", "acme"])?;
        assert_eq!(shown["address"], address.as_str(), "{name}");
        assert_eq!(shown["state"], "attached", "{name}");
    }
    let sandboxes = lab.json(&["sandbox", "list"])?.as_array().unwrap().len();
    assert_eq!(
        sandboxes,
        bound.len(),
        "a bound lease for each sandbox and none besides"
    );
    Ok(())
}

/// A TCP conversation between two sandboxes that goes on through everything.
struct Flow {
    path: std::path::PathBuf,
}

impl Flow {
    fn start(lab: &Lab, one: &Sandbox, two: &Sandbox) -> anyhow::Result<Self> {
        let client = lab.folder.join("client.py");
        std::fs::write(&client, include_str!("../../src/demo/client.py"))?;
        let path = lab.folder.join("flow");
        let start = |sandbox: &Sandbox, arguments: &[&str]| {
            let mut command = sandbox.namespace.command("python3");
            command
                .arg(&client)
                .args(arguments)
                .stdin(Stdio::null())
                .stdout(Stdio::null());
            command.spawn()
        };
        // They end with the lab's PID namespace.
        start(two, &["serve", "8080"])?;
        poll("the server", Duration::from_secs(5), || {
            let mut probe = one.namespace.command("python3");
            let address = two.address.to_string();
            Ok(run(probe.arg(&client).args(["tcp", &address, "8080"]))?
                .ok()
                .then_some(()))
        })?;
        start(
            one,
            &[
                "talk",
                &two.address.to_string(),
                "8080",
                &path.to_string_lossy(),
            ],
        )?;
        let flow = Self { path };
        poll("the flow", Duration::from_secs(5), || {
            Ok((flow.count() > 3).then_some(()))
        })?;
        Ok(flow)
    }

    fn count(&self) -> usize {
        std::fs::read_to_string(&self.path)
            .unwrap_or_default()
            .lines()
            .count()
    }

    /// The flow lives, and no round trip took as long as a retransmission of TCP's (RFC 6298
    /// waits 1 s at first; Linux 200 ms at the least).
    fn check(&self) -> anyhow::Result<()> {
        let before = self.count();
        poll("the flow to go on", Duration::from_secs(5), || {
            Ok((self.count() > before).then_some(()))
        })?;
        let text = std::fs::read_to_string(&self.path)?;
        let worst = text
            .lines()
            .filter_map(|line| line.split_once(' ')?.1.parse::<f64>().ok())
            .fold(0.0, f64::max);
        assert!(worst < 1000.0, "the flow stalled for {worst} ms");
        println!(
            "{} round trips, the worst took {worst} ms",
            text.lines().count()
        );
        Ok(())
    }
}

/// Runs `causeway` commands without borrowing the lab, which the killer holds.
struct Commands {
    socket: std::path::PathBuf,
}

impl Commands {
    fn of(lab: &Lab) -> Self {
        Self {
            socket: lab.api_socket(),
        }
    }

    fn causeway(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(crate::support::causeway_binary());
        command.arg("--socket").arg(&self.socket).args(arguments);
        command
    }
}

/// Xorshift: enough for choosing moments.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}
