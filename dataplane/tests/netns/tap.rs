//! A microVM's tap device, with a program in the place of the microVM.

use causeway_dataplane::facade::AttachError;
use causeway_dataplane::{Attachment, BackendError, InterfaceName};

use super::common::{dataplane, desired, isolated, ping, run, shell, spec};

/// Opens the tap by name, sends an echo request as a guest would, and waits for the answer.
/// Then it answers requests itself, for as long as it lives.
const GUEST: &str = r#"
import fcntl, os, select, socket, struct, sys, time
name, mac, gateway, source, target = sys.argv[1:6]
tap = os.open("/dev/net/tun", os.O_RDWR)
fcntl.ioctl(tap, 0x400454ca, struct.pack("16sH22x", name.encode(), 0x1002))
mac, gateway = (bytes.fromhex(m.replace(":", "")) for m in (mac, gateway))
own, to = (socket.inet_pton(socket.AF_INET6, a) for a in (source, target))
def checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack("!%dH" % (len(data) // 2), data))
    while total >> 16: total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff
def echo(kind, to, rest):
    body = struct.pack("!BBH", kind, 0, 0) + rest
    pseudo = own + to + struct.pack("!II", len(body), 58)
    body = struct.pack("!BBH", kind, 0, checksum(pseudo + body)) + rest
    packet = struct.pack("!IHBB", 0x60000000, len(body), 58, 64) + own + to + body
    os.write(tap, gateway + mac + b"\x86\xdd" + packet)
deadline = time.time() + 10
answered = False
while time.time() < deadline:
    if not answered: echo(128, to, struct.pack("!HH", 7, 1) + b"hello")
    while select.select([tap], [], [], 0.2)[0]:
        frame = os.read(tap, 2048)
        if frame[:6] != mac or frame[12:14] != b"\x86\xdd" or frame[20] != 58: continue
        if frame[54] == 129 and not answered:
            answered = True
            print("answered", flush=True)
        if frame[54] == 128: echo(129, frame[22:38], frame[58:])
    if answered and len(sys.argv) < 7: break
sys.exit(0 if answered else 1)
"#;

#[test]
fn a_guest_on_a_tap_reaches_its_network() {
    isolated(
        concat!(module_path!(), "::a_guest_on_a_tap_reaches_its_network"),
        async || {
            let plane = dataplane().await;
            std::fs::write("/run/guest.py", GUEST).unwrap();
            let mut guest = spec(1, &["front"]);
            guest.attachment = Attachment::Tap {
                name: InterfaceName::new("vm1").unwrap(),
            };
            let specs = [guest.clone(), spec(2, &["front"]), spec(3, &["back"])];
            run("ip netns add s2; ip netns add s3");
            for spec in &specs[1..] {
                plane.attach(spec.clone()).await.unwrap();
            }
            let links = || run("ip -o link | wc -l");
            let before = links();
            plane.attach(specs[0].clone()).await.unwrap();
            assert_eq!(plane.reconcile(&desired(&specs)).await.unwrap().changes, 0);
            let program = |to: &str, more: &str| {
                format!(
                    "python3 /run/guest.py vm1 {} {} {} {to} {more}",
                    guest.mac(),
                    causeway_types::MacAddress::GATEWAY,
                    guest.address,
                )
            };
            run(&program(&specs[1].address.to_string(), ""));
            assert!(
                !shell(&program(&specs[2].address.to_string(), ""))
                    .status
                    .success()
            );

            // And it is reached.
            let to = specs[1].address.to_string();
            let serve = program(&to, "serve");
            let mut serving = std::process::Command::new("sh")
                .args(["-c", &format!("exec {serve}")])
                .spawn()
                .unwrap();
            let deadline = std::time::Instant::now() + std::time::Duration::from_secs(8);
            while !ping("s2", guest.address).success() {
                assert!(std::time::Instant::now() < deadline, "the guest answers");
            }
            serving.kill().unwrap();
            serving.wait().unwrap();

            let mut second = spec(4, &[]);
            second.attachment = guest.attachment.clone();
            let taken = plane.attach(second).await;
            assert!(
                matches!(
                    taken,
                    Err(AttachError::Port {
                        source: BackendError::InterfaceExists { .. },
                        ..
                    })
                ),
                "{taken:?}"
            );
            run("ip link show vm1");
            plane.detach(guest.uid).await.unwrap();
            assert_eq!(links(), before, "{}", run("ip link"));
            plane.attach(guest.clone()).await.unwrap();
            plane.teardown().await.unwrap();
            assert_eq!(run("ip -o link | wc -l").trim(), "1", "{}", run("ip link"));
        },
    );
}
