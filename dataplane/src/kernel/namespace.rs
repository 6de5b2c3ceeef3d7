//! Network namespaces: finding, making, entering.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};

use crate::backend::BackendError;

/// An open network namespace.
#[derive(Debug)]
pub(crate) struct Namespace {
    fd: OwnedFd,
    path: PathBuf,
    identity: (u64, u64),
}

impl Namespace {
    /// Opens the file that a namespace is bound to. Whether it is one shows when it is entered.
    pub(crate) fn open(path: &Path) -> Result<Self, BackendError> {
        let file = File::open(path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => BackendError::NamespaceMissing {
                path: path.to_owned(),
            },
            _ => io_error("open the network namespace", path, source),
        })?;
        let metadata = file
            .metadata()
            .map_err(|source| io_error("look at", path, source))?;
        Ok(Self {
            identity: (metadata.dev(), metadata.ino()),
            fd: file.into(),
            path: path.to_owned(),
        })
    }

    /// The calling thread's namespace.
    pub(crate) fn current() -> Result<Self, BackendError> {
        Self::open(Path::new("/proc/thread-self/ns/net"))
    }

    /// Takes the calling thread into the namespace.
    pub(crate) fn enter(&self) -> Result<(), BackendError> {
        setns(&self.fd, CloneFlags::CLONE_NEWNET).map_err(|errno| match errno {
            Errno::EINVAL => BackendError::NotANamespace {
                path: self.path.clone(),
            },
            Errno::EPERM => BackendError::Permission {
                operation: "enter a network namespace",
            },
            other => io_error("enter", &self.path, other.into()),
        })
    }

    /// Whether the two are the same namespace, under whatever names.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.identity == other.identity
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Makes a network namespace and binds it to `path`, as `ip netns add` does. Finds the one
/// that is there. The calling thread ends up inside it: use a thread of its own.
pub(crate) fn create_and_enter(path: &Path) -> Result<Namespace, BackendError> {
    match Namespace::open(path) {
        Ok(namespace) => match namespace.enter() {
            Ok(()) => return Ok(namespace),
            // A file that nothing is bound to: the machine restarted, or a process died in
            // between. It is bound below.
            Err(BackendError::NotANamespace { .. }) => {}
            Err(error) => return Err(error),
        },
        Err(BackendError::NamespaceMissing { .. }) => {}
        Err(error) => return Err(error),
    }
    if let Some(directory) = path.parent() {
        share_directory(directory)?;
    }
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .map_err(|source| io_error("create", path, source))?;
    unshare(CloneFlags::CLONE_NEWNET).map_err(|errno| match errno {
        Errno::EPERM => BackendError::Permission {
            operation: "create a network namespace",
        },
        other => io_error("create a network namespace for", path, other.into()),
    })?;
    let own = "/proc/thread-self/ns/net";
    mount(
        Some(own),
        path,
        None::<&str>,
        MsFlags::MS_BIND,
        None::<&str>,
    )
    .map_err(|errno| io_error("bind a network namespace to", path, errno.into()))?;
    Namespace::open(path)
}

/// Makes the directory a shared mount of its own, so that namespaces that are bound in it show
/// up in, and vanish from, other mount namespaces as well.
fn share_directory(directory: &Path) -> Result<(), BackendError> {
    let failed = |operation| move |source| io_error(operation, directory, source);
    fs::create_dir_all(directory).map_err(failed("create"))?;
    let flags = MsFlags::MS_SHARED | MsFlags::MS_REC;
    let share = || mount(None::<&str>, directory, None::<&str>, flags, None::<&str>);
    match share() {
        Ok(()) => return Ok(()),
        Err(Errno::EINVAL) => {}
        Err(Errno::EPERM) => {
            return Err(BackendError::Permission {
                operation: "mount a network namespace",
            });
        }
        Err(errno) => return Err(io_error("share", directory, errno.into())),
    }
    // Not a mount point yet.
    let bind = MsFlags::MS_BIND | MsFlags::MS_REC;
    mount(Some(directory), directory, None::<&str>, bind, None::<&str>)
        .map_err(|errno| io_error("mount", directory, errno.into()))?;
    share().map_err(|errno| io_error("share", directory, errno.into()))
}

/// Unbinds a namespace and removes its file. Nothing there is success.
pub(crate) fn remove(path: &Path) -> Result<(), BackendError> {
    match umount2(path, MntFlags::MNT_DETACH) {
        // Not bound, or not there.
        Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => {}
        Err(errno) => return Err(io_error("unbind", path, errno.into())),
    }
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(io_error("remove", path, source))
        }
        _ => Ok(()),
    }
}

pub(crate) fn io_error(operation: &'static str, path: &Path, source: io::Error) -> BackendError {
    if source.kind() == io::ErrorKind::PermissionDenied {
        return BackendError::Permission { operation };
    }
    BackendError::Io {
        operation,
        path: path.to_owned(),
        source,
    }
}
