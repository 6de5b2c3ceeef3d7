//! A microVM for tests: a distribution's kernel under QEMU's emulation, and a small initial RAM
//! disk with busybox, curl and a script in it.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::net::Ipv6Addr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use causeway::lab::{poll, run, run_ok};
use serde_json::Value;

/// Where `scripts/guest` leaves the kernel.
const KERNEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/target/guest");
/// In MiB.
const MEMORY: &str = "256";
const CURL: &str = "/usr/bin/curl";
/// Emulation is slow, and the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(240);

/// Why no guest can be had on this machine, if so.
pub(crate) fn missing() -> Option<String> {
    let kernel = Path::new(KERNEL).join("vmlinuz");
    if !kernel.exists() {
        return Some(format!(
            "needs a guest's kernel in {KERNEL} (scripts/guest fetches it)"
        ));
    }
    ["qemu-system-x86_64", "busybox", "gzip"]
        .into_iter()
        .find(|program| run_ok(Command::new("which").arg(program)).is_err())
        .map(|program| format!("needs `{program}`"))
}

/// How a guest is wired.
#[derive(Debug, Clone)]
pub(crate) enum Nic {
    /// By the name of its tap device.
    Tap(String),
    /// By a vhost-user socket on which the forwarder listens.
    VhostUser(PathBuf),
}

/// What the guest has to know of itself: what a create of the API returned.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    mac: String,
    pub(crate) address: Ipv6Addr,
    resolver: String,
}

impl Identity {
    /// Takes what the guest needs out of the reply to a create.
    pub(crate) fn of(created: &Value) -> anyhow::Result<Self> {
        let text = |key: &str| -> anyhow::Result<String> {
            let value = created[key].as_str().with_context(|| format!("no {key}"))?;
            Ok(value.to_owned())
        };
        Ok(Self {
            mac: text("mac")?,
            address: text("address")?.parse()?,
            resolver: text("resolver")?,
        })
    }
}

/// A running guest, which ends with this value.
#[derive(Debug)]
pub(crate) struct Guest {
    machine: Child,
    console: PathBuf,
}

impl Guest {
    /// Boots a guest that configures itself and runs `script`. Files of `folder/files` are in its
    /// root directory.
    pub(crate) fn boot(
        folder: &Path,
        nic: &Nic,
        identity: &Identity,
        script: &str,
    ) -> anyhow::Result<Self> {
        let root = folder.join("root");
        fill(&root, identity, script)?;
        let disk = folder.join("initramfs.gz");
        pack(&root, &disk)?;
        let console = folder.join("console");
        let mut machine = Command::new("qemu-system-x86_64");
        machine
            .args(["-nodefaults", "-no-user-config", "-no-reboot"])
            .args(["-machine", "q35", "-accel", "tcg", "-cpu", "max"])
            .args(["-m", MEMORY, "-display", "none", "-kernel"])
            .arg(Path::new(KERNEL).join("vmlinuz"))
            .arg("-initrd")
            .arg(&disk)
            .args(["-append", "console=ttyS0 quiet panic=-1", "-serial"])
            .arg(format!("file:{}", console.display()))
            .args(nic.arguments(&identity.mac));
        let machine = machine
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(folder.join("qemu.log"))?)
            .spawn()
            .context("cannot start QEMU")?;
        Ok(Self { machine, console })
    }

    /// Waits until the guest has written `text` on its console, and gives all that is there.
    pub(crate) fn await_text(&mut self, text: &str) -> anyhow::Result<String> {
        poll(&format!("the guest to say {text}"), PATIENCE, || {
            let said = fs::read(&self.console).unwrap_or_default();
            let said = String::from_utf8_lossy(&said).into_owned();
            if said.contains(text) {
                return Ok(Some(said));
            }
            ensure!(
                self.machine.try_wait()?.is_none(),
                "the guest ended, having said: {said}"
            );
            Ok(None)
        })
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _gone = self.machine.kill();
        let _reaped = self.machine.wait();
    }
}

impl Nic {
    fn arguments(&self, mac: &str) -> Vec<String> {
        let device = format!("virtio-net-pci,netdev=n0,mac={mac}");
        match self {
            Self::Tap(name) => {
                let backend = format!("tap,id=n0,ifname={name},script=no,downscript=no");
                words(&["-netdev", &backend, "-device", &device])
            }
            Self::VhostUser(socket) => {
                let backend = format!("socket,id=c0,path={},reconnect=1", socket.display());
                // The forwarder reads and writes the guest's memory. Under emulation interrupts
                // have to go by lines, not messages.
                let device = format!("{device},vectors=0");
                let memory = format!("memory-backend-memfd,id=m0,size={MEMORY}M,share=on");
                let netdev = "vhost-user,id=n0,chardev=c0";
                words(&[
                    "-object",
                    &memory,
                    "-numa",
                    "node,memdev=m0",
                    "-chardev",
                    &backend,
                    "-netdev",
                    netdev,
                    "-device",
                    &device,
                ])
            }
        }
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Makes the guest's root directory.
fn fill(root: &Path, identity: &Identity, script: &str) -> anyhow::Result<()> {
    for folder in ["bin", "lib", "proc", "sys", "dev", "etc", "tmp"] {
        fs::create_dir_all(root.join(folder))?;
    }
    let busybox = run_ok(Command::new("which").arg("busybox"))?;
    fs::copy(busybox.trim(), root.join("bin/busybox"))?;
    for program in [busybox.trim(), CURL] {
        with_libraries(root, Path::new(program))?;
    }
    let mut init = String::from(
        "#!/bin/busybox sh\n\
         /bin/busybox --install -s /bin\n\
         export PATH=/bin:/usr/bin\n\
         mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev\n",
    );
    let drivers = Path::new(KERNEL).join("modules");
    for driver in fs::read_dir(&drivers).into_iter().flatten() {
        let file = driver?;
        fs::copy(file.path(), root.join("lib").join(file.file_name()))?;
    }
    // They depend on each other, differently from kernel to kernel.
    init.push_str(
        "for pass in 1 2 3 4 5; do for driver in /lib/*.ko; do insmod $driver 2>/dev/null; \
         done; done\n",
    );
    let Identity {
        address, resolver, ..
    } = identity;
    // As the guide tells users: no negotiation, everything as the API said.
    writeln!(
        init,
        "echo 0 > /proc/sys/net/ipv6/conf/all/accept_ra\n\
         for key in accept_dad dad_transmits accept_ra; do\n\
         echo 0 > /proc/sys/net/ipv6/conf/eth0/$key; done\n\
         ip link set lo up; ip link set eth0 up\n\
         ip -6 addr add {address}/128 dev eth0\n\
         ip -6 route add default via fe80::1 dev eth0\n\
         echo nameserver {resolver} > /etc/resolv.conf\n\
         {script}\n\
         echo the end; poweroff -f"
    )?;
    let path = root.join("init");
    fs::write(&path, init)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

/// Copies a program and the libraries that it is linked with to where they are.
fn with_libraries(root: &Path, program: &Path) -> anyhow::Result<()> {
    // It fails for a program without libraries.
    let listed = run(Command::new("ldd").arg(program))?.stdout;
    let libraries = listed
        .split_whitespace()
        .filter(|word| word.starts_with('/'))
        .map(Path::new);
    for library in libraries.chain([program]) {
        let to = root.join(library.strip_prefix("/")?);
        fs::create_dir_all(to.parent().unwrap_or(root))?;
        fs::copy(library, to)?;
    }
    Ok(())
}

/// Packs a directory as the kernel wants its initial RAM disk.
fn pack(root: &Path, disk: &Path) -> anyhow::Result<()> {
    let script = "find . | busybox cpio -o -H newc 2>/dev/null | gzip -1 > \"$0\"";
    run_ok(Command::new("sh").current_dir(root).args([
        OsStr::new("-c"),
        OsStr::new(script),
        disk.as_os_str(),
    ]))?;
    Ok(())
}
