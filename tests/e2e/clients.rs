//! Real clients against real servers, through the whole product.

use causeway::lab::{Finished, Lab, run, run_ok};

use crate::support::{Sandbox, in_lab};

const POLICY: &str = r#"
apiVersion: causeway/v1
kind: Policy
metadata: { name: clients, tenant: acme }
spec:
  selector: {}
  egress:
    - { name: static, to: [static.example], http: [{ methods: [GET, POST], paths: ["/ok/**"] }] }
    - { name: files, to: [files.forge.example] }
    - { name: legacy, to: [legacy.example] }
"#;

/// A lab with an agent, a policy, a sandbox, and the roots that a client needs in a file.
fn set_up(lab: &mut Lab, policy: &str) -> anyhow::Result<Sandbox> {
    lab.start_agent()?;
    let file = lab.folder.join("policy.yaml");
    std::fs::write(&file, policy)?;
    run_ok(&mut lab.command(&["policy", "apply", &file.to_string_lossy()]))?;
    let sandbox = Sandbox::create(lab, "acme", "one", &[], "")?;
    let roots = [
        run_ok(&mut lab.command(&["ca"]))?,
        std::fs::read_to_string(lab.folder.join("internet-root.pem"))?,
    ];
    std::fs::write(lab.folder.join("roots.pem"), roots.concat())?;
    Ok(sandbox)
}

#[test]
fn curl_by_every_way_in() {
    in_lab("clients::curl_by_every_way_in", |mut lab| {
        let one = set_up(&mut lab, POLICY)?;
        let roots = lab.folder.join("roots.pem");
        let fetch = |way: &[&str], url: &str| -> anyhow::Result<Finished> {
            let mut curl = one.namespace.command("curl");
            curl.args([
                "-sS",
                "--max-time",
                "10",
                "-w",
                "\n%{http_version} %{http_code}",
            ]);
            run(curl.arg("--cacert").arg(&roots).args(way).arg(url))
        };
        let ways: [&[&str]; 7] = [
            &[],
            &["--proxy", "http://[fd63:6175:7365::53]:3128"],
            &["--proxy", "http://proxy.internal:3128", "--proxytunnel"],
            &["--proxy", "http://proxy.internal:1080"],
            &["--proxy", "socks5h://proxy.internal:1080"],
            &["--proxy", "socks5://proxy.internal:1080"],
            &["--proxy", "socks5h://[fd63:6175:7365::53]:3128"],
        ];
        for way in ways {
            for (url, version) in [
                ("https://static.example/ok/a", "2 200"),
                ("https://files.forge.example/a", "2 200"),
                ("http://static.example/ok/a", "1.1 200"),
                ("https://legacy.example/a", "2 200"),
            ] {
                let got = fetch(way, url)?;
                assert!(
                    got.ok() && got.stdout.ends_with(version),
                    "{way:?} {url}: {}",
                    got.output()
                );
                let peer = got.stdout.contains(&one.address.to_string());
                assert!(
                    peer || url.contains("legacy"),
                    "from its own address: {}",
                    got.stdout
                );
            }
            let got = fetch(way, "https://static.example/no")?;
            assert!(
                got.stdout.contains("request_denied"),
                "{way:?}: {}",
                got.output()
            );
            for url in ["https://intruder.example/", "https://static.example:7000/"] {
                let got = fetch(way, url)?;
                assert!(
                    !got.ok() || got.stdout.ends_with("403"),
                    "{way:?} {url}: {}",
                    got.output()
                );
            }
        }
        let refused = fetch(
            &["--proxy", "http://proxy.internal:3128", "-v"],
            "https://intruder.example/",
        )?;
        assert!(
            refused.stderr.contains("< HTTP/1.1 403"),
            "{}",
            refused.stderr
        );
        assert!(
            refused.stderr.contains("x-causeway-denied: name_denied"),
            "{}",
            refused.stderr
        );
        // Other sandboxes, and the router, are not behind it.
        let two = Sandbox::create(&lab, "acme", "two", &[], "")?;
        let url = format!("http://[{}]:3128/", two.address);
        let got = fetch(&["--proxy", "http://proxy.internal:3128"], &url)?;
        assert!(got.stdout.contains("reserved_address"), "{}", got.output());
        let received = lab.received()?;
        assert!(received.iter().all(|request| request["path"] != "/no"));
        Ok(())
    });
}
