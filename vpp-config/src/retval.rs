//! Return values.

use std::fmt;

/// The return value of a request. Zero is success.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Retval(pub i32);

macro_rules! retvals {
    ($($(#[$meta:meta])* $name:ident = $value:literal, $text:literal;)*) => {
        impl Retval {
            $(
                #[doc = $text]
                pub const $name: Self = Self($value);
            )*

            /// What it means, where this crate knows.
            pub const fn meaning(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

retvals! {
    OK = 0, "success";
    UNSPECIFIED = -1, "unspecified error";
    INVALID_SW_IF_INDEX = -2, "no such interface";
    NO_SUCH_FIB = -3, "no such table";
    NO_SUCH_INNER_FIB = -4, "no such inner table";
    NO_SUCH_LABEL = -5, "no such label";
    NO_SUCH_ENTRY = -6, "no such entry";
    INVALID_VALUE = -7, "invalid value";
    INVALID_VALUE_2 = -8, "invalid second value";
    UNIMPLEMENTED = -9, "unimplemented";
    INVALID_SW_IF_INDEX_2 = -10, "no such second interface";
    SYSCALL_ERROR_1 = -11, "the first system call failed";
    SYSCALL_ERROR_2 = -12, "the second system call failed";
    SYSCALL_ERROR_3 = -13, "the third system call failed";
    SYSCALL_ERROR_4 = -14, "the fourth system call failed";
    SYSCALL_ERROR_5 = -15, "the fifth system call failed";
    SYSCALL_ERROR_6 = -16, "the sixth system call failed";
    SYSCALL_ERROR_7 = -17, "the seventh system call failed";
    SYSCALL_ERROR_8 = -18, "the eighth system call failed";
    SYSCALL_ERROR_9 = -19, "the ninth system call failed";
    SYSCALL_ERROR_10 = -20, "the tenth system call failed";
    FEATURE_DISABLED = -30, "the feature is disabled";
    INVALID_REGISTRATION = -31, "already registered, or never";
    NEXT_HOP_NOT_IN_FIB = -50, "the next hop is not in the table";
    UNKNOWN_DESTINATION = -51, "unknown destination";
    NO_PATHS_IN_ROUTE = -52, "the route has no paths";
    NEXT_HOP_NOT_FOUND_MP = -53, "no such next hop among several";
    NO_MATCHING_INTERFACE = -54, "no such interface to attach to";
    INVALID_SRC_ADDRESS = -57, "invalid source address";
    INVALID_DST_ADDRESS = -58, "invalid destination address";
    ADDRESS_LENGTH_MISMATCH = -59, "the address's length does not match";
    ADDRESS_NOT_FOUND_FOR_INTERFACE = -60, "the interface has no such address";
    ADDRESS_NOT_DELETABLE = -61, "the address cannot be deleted";
    IP6_NOT_ENABLED = -62, "IPv6 is not enabled on the interface";
    NO_SUCH_NODE = -63, "no such graph node";
    NO_SUCH_TABLE = -65, "no such classifier table";
    INVALID_MEMORY_SIZE = -70, "invalid memory size";
    INVALID_INTERFACE = -71, "invalid interface";
    INVALID_ARGUMENT = -73, "invalid argument";
    UNEXPECTED_INTF_STATE = -74, "the interface is in another state";
    TUNNEL_EXIST = -75, "the tunnel exists";
    IF_ALREADY_EXISTS = -79, "the interface exists";
    VALUE_EXIST = -81, "the value exists";
    NOT_RUNNING_AS_ROOT = -85, "VPP does not run as root";
    IP_PREFIX_INVALID = -88, "the prefix has bits beyond its length";
    INVALID_WORKER = -89, "no such worker";
    CLASSIFY_TABLE_NOT_FOUND = -91, "no such classifier table for the session";
    INVALID_ADDRESS_FAMILY = -97, "invalid address family";
    TABLE_TOO_BIG = -99, "the table is too big";
    CANNOT_ENABLE_DISABLE_FEATURE = -100, "the feature cannot be switched";
    ADDRESS_IN_USE = -105, "the address is in use";
    ADDRESS_NOT_IN_USE = -106, "the address is not in use";
    QUEUE_FULL = -107, "the queue is full";
    ADDRESS_FOUND_FOR_INTERFACE = -114, "the interface has addresses";
    ENTRY_ALREADY_EXISTS = -116, "the entry exists";
    INVALID_QUEUE = -125, "no such queue";
    UNSUPPORTED = -126, "not supported";
    DUPLICATE_IF_ADDRESS = -127, "the address is on an interface of the table";
    ACL_IN_USE_INBOUND = -142, "the access list is in use for input";
    ACL_IN_USE_OUTBOUND = -143, "the access list is in use for output";
    INIT_FAILED = -144, "the initialization failed";
    NETLINK_ERROR = -145, "netlink failed";
    INSTANCE_IN_USE = -147, "the instance number is in use";
    ACL_IN_USE_BY_LOOKUP_CONTEXT = -149, "the access list is in use for lookups";
    INVALID_VALUE_3 = -150, "invalid third value";
    NON_ETHERNET = -151, "the interface is no Ethernet interface";
    INVALID_PROTOCOL = -153, "invalid protocol";
    RSRC_IN_USE = -155, "the resource is in use";
    FIB_PATH_UNSUPPORTED_NH_PROTO = -157, "the path's protocol is not supported";
    API_ENDIAN_FAILED = -159, "VPP could not turn the bytes round";
    NO_CHANGE = -160, "nothing to change";
    LIMIT_EXCEEDED = -162, "a limit is exceeded";
    EAGAIN = -165, "there is more: ask again from the cursor";
    INVALID_VALUE_4 = -166, "invalid fourth value";
    BUSY = -167, "busy";
    BUG = -168, "a bug in VPP";
    FEATURE_ALREADY_DISABLED = -169, "the feature is off already";
    FEATURE_ALREADY_ENABLED = -170, "the feature is on already";
    INVALID_PREFIX_LENGTH = -171, "invalid prefix length";
}

impl Retval {
    /// An error, unless it is success.
    pub const fn check(self) -> Result<(), Self> {
        if self.0 == 0 { Ok(()) } else { Err(self) }
    }
}

impl fmt::Display for Retval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.meaning() {
            Some(meaning) => write!(f, "{} ({meaning})", self.0),
            None => self.0.fmt(f),
        }
    }
}

impl fmt::Debug for Retval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Retval({self})")
    }
}
