//! Decisions: may a sandbox connect to a name, among 10, 1,000 and 100,000 rules; and what it costs
//! to read and to compile the largest of these sets.

use std::fmt::Write as _;
use std::hint::black_box;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use anyhow::ensure;
use causeway_policy::model::Protocol;
use causeway_policy::{Connect, Document, Effective, Reserved};
use causeway_types::DomainName;

use crate::report::Report;
use crate::stats::Samples;
use crate::world::World;

const SIZES: [usize; 3] = [10, 1000, 100_000];
/// Rules in one policy; several policies select the same sandbox.
const RULES_PER_POLICY: usize = 1000;
/// Different questions, half of which are refused, and how often each is asked in a round.
const QUESTIONS: usize = 64;
const REPEATS: usize = 200;
const ROUNDS: usize = 7;

/// What is asked, and of which policies.
struct Case {
    rules: usize,
    effective: Effective,
    names: Vec<DomainName>,
    times: Vec<f64>,
}

/// `policy.*`.
pub(crate) fn measure(_world: &mut World, report: &mut Report) -> anyhow::Result<()> {
    let mut cases = SIZES
        .into_iter()
        .map(Case::new)
        .collect::<anyhow::Result<Vec<_>>>()?;
    for case in &cases {
        let permitted = case.names.iter().filter(|name| case.permits(name)).count();
        ensure!(
            permitted == QUESTIONS / 2,
            "{permitted} of {QUESTIONS} names are permitted"
        );
    }
    for _ in 0..ROUNDS {
        for case in &mut cases {
            case.round();
        }
    }
    compile(report)?;
    for case in cases {
        let samples = case.times.into_iter().collect::<Samples>();
        report.set_median(&format!("policy.decide_ns_{}", case.rules), &samples);
    }
    Ok(())
}

/// How long it takes to read and to compile the largest set, and what the compiled form holds.
fn compile(report: &mut Report) -> anyhow::Result<()> {
    const RULES: usize = SIZES[2];
    let (mut parsed, mut compiled) = (Vec::new(), Vec::new());
    let mut held = 0;
    for _ in 0..3 {
        let start = Instant::now();
        let policies = policies(RULES)?;
        parsed.push(start.elapsed().as_secs_f64() * 1e3);
        let before = resident()?;
        let start = Instant::now();
        let effective = Effective::compile(&policies, &[], &Reserved::default());
        compiled.push(start.elapsed().as_secs_f64() * 1e3);
        // Later rounds use what the first one gave back, so it is the one that shows.
        held = held.max(resident()?.saturating_sub(before));
        black_box(&effective);
    }
    let parsed = parsed.into_iter().collect::<Samples>();
    report.set_median(&format!("policy.parse_ms_{RULES}"), &parsed);
    let compiled = compiled.into_iter().collect::<Samples>();
    report.set_median(&format!("policy.compile_ms_{RULES}"), &compiled);
    #[expect(
        clippy::cast_precision_loss,
        reason = "a size of memory needs no 53 bits"
    )]
    report.set(&format!("policy.compiled_bytes_{RULES}"), held as f64);
    Ok(())
}

/// The resident memory of this process, in bytes.
fn resident() -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    Ok(kib.ok_or_else(|| anyhow::anyhow!("no VmRSS in /proc/self/status"))? * 1024)
}

fn policies(rules: usize) -> anyhow::Result<Vec<Arc<causeway_policy::Policy>>> {
    let mut policies = Vec::new();
    for first in (0..rules).step_by(RULES_PER_POLICY) {
        let text = policy_text(first, RULES_PER_POLICY.min(rules - first));
        for document in causeway_policy::parse("bench", &text)? {
            if let Document::Policy(policy) = document {
                policies.push(Arc::new(policy));
            }
        }
    }
    Ok(policies)
}

impl Case {
    fn new(rules: usize) -> anyhow::Result<Self> {
        let policies = policies(rules)?;
        let effective = Effective::compile(&policies, &[], &Reserved::default());
        let names = (0..QUESTIONS)
            .map(|question| {
                let rule = question * 7919 % rules;
                let zone = if question % 2 == 0 {
                    "example"
                } else {
                    "invalid"
                };
                Ok(format!("host{rule}.zone{}.{zone}", rule % 97).parse()?)
            })
            .collect::<anyhow::Result<_>>()?;
        Ok(Self {
            rules,
            effective,
            names,
            times: Vec::new(),
        })
    }

    fn permits(&self, name: &DomainName) -> bool {
        let address = IpAddr::from([0x3ffe, 0xb00, 0, 0, 0, 0, 0, 0x10_u16]);
        let connect = Connect {
            name: Some(name),
            address,
            port: 443,
            protocol: Protocol::Tcp,
            tls: true,
        };
        self.effective.connect(black_box(&connect)).is_ok()
    }

    fn round(&mut self) {
        let start = Instant::now();
        for _ in 0..REPEATS {
            for name in &self.names {
                black_box(self.permits(name));
            }
        }
        let decisions = u32::try_from(REPEATS * QUESTIONS).unwrap_or(u32::MAX);
        self.times
            .push(start.elapsed().as_secs_f64() * 1e9 / f64::from(decisions));
    }
}

fn policy_text(first: usize, count: usize) -> String {
    let mut text = format!(
        "apiVersion: causeway/v1\nkind: Policy\nmetadata: {{ name: bench-{first}, tenant: acme }}\n\
         spec:\n  selector: {{}}\n  egress:\n"
    );
    for rule in first..first + count {
        let zone = rule % 97;
        let _infallible = writeln!(
            text,
            "    - {{ name: rule-{rule}, to: [\"host{rule}.zone{zone}.example\"], ports: [443] }}"
        );
    }
    text
}
