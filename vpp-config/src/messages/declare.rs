//! The tables in which messages are declared.

/// `Name("vpp_name", 0xcrc) { fields } -> Reply(0xcrc);`
macro_rules! requests {
    ($(
        $(#[$meta:meta])*
        $name:ident($vpp:literal, $crc:literal) { $($fields:tt)* } -> $reply:ty = $reply_crc:literal;
    )*) => {
        wire_structs! {$($(#[$meta])* $name { $($fields)* })*}

        $(impl $crate::messages::Message for $name {
            const IDS: &'static [$crate::messages::MessageId] = &[<Self as $crate::messages::Request>::ID, <Self as $crate::messages::Request>::REPLY_ID];
        })*

        $(impl $crate::messages::Request for $name {
            const ID: $crate::messages::MessageId = $crate::messages::MessageId {
                name: $vpp,
                crc: $crc,
            };
            const REPLY_ID: $crate::messages::MessageId = $crate::messages::MessageId {
                name: concat!($vpp, "_reply"),
                crc: $reply_crc,
            };
            type Reply = $reply;
        })*

        pub(super) const REQUESTS: &[$crate::messages::Declared] = &[$(
            declared!($name, <$name as $crate::messages::Request>::ID, Request, copy_body),
            declared!($reply, <$name as $crate::messages::Request>::REPLY_ID, Reply, copy_reply),
        )*];
    };
}

/// `Name("vpp_dump", 0xcrc) { fields } => Details("vpp_details", 0xcrc) { fields };`
macro_rules! dumps {
    ($(
        $(#[$meta:meta])*
        $name:ident($vpp:literal, $crc:literal) { $($fields:tt)* } =>
        $(#[$details_meta:meta])*
        $details:ident($details_vpp:literal, $details_crc:literal) { $($details_fields:tt)* };
    )*) => {
        wire_structs! {$(
            $(#[$meta])* $name { $($fields)* }
            $(#[$details_meta])* $details { $($details_fields)* }
        )*}

        $(impl $crate::messages::Message for $name {
            const IDS: &'static [$crate::messages::MessageId] = &[<Self as $crate::messages::Dump>::ID, <Self as $crate::messages::Dump>::DETAILS_ID];
        })*

        $(impl $crate::messages::Dump for $name {
            const ID: $crate::messages::MessageId = $crate::messages::MessageId {
                name: $vpp,
                crc: $crc,
            };
            const DETAILS_ID: $crate::messages::MessageId = $crate::messages::MessageId {
                name: $details_vpp,
                crc: $details_crc,
            };
            type Details = $details;
        })*

        pub(super) const DUMPS: &[$crate::messages::Declared] = &[$(
            declared!($name, <$name as $crate::messages::Dump>::ID, Dump, copy_body),
            declared!($details, <$name as $crate::messages::Dump>::DETAILS_ID, Details, copy_body),
        )*];
    };
}

/// As `dumps`, with the reply's CRC. The cursor is no field.
macro_rules! gets {
    ($(
        $(#[$meta:meta])*
        $name:ident($vpp:literal, $crc:literal) { $($fields:tt)* } =>
        $(#[$details_meta:meta])*
        $details:ident($details_vpp:literal, $details_crc:literal) { $($details_fields:tt)* },
        $reply_crc:literal;
    )*) => {
        wire_structs! {$(
            $(#[$meta])* $name { $($fields)* }
            $(#[$details_meta])* $details { $($details_fields)* }
        )*}

        $(impl $crate::messages::Message for $name {
            const IDS: &'static [$crate::messages::MessageId] = &[<Self as $crate::messages::Get>::ID, <Self as $crate::messages::Get>::DETAILS_ID, <Self as $crate::messages::Get>::REPLY_ID];
        })*

        $(impl $crate::messages::Get for $name {
            const ID: $crate::messages::MessageId = $crate::messages::MessageId {
                name: $vpp,
                crc: $crc,
            };
            const DETAILS_ID: $crate::messages::MessageId = $crate::messages::MessageId {
                name: $details_vpp,
                crc: $details_crc,
            };
            const REPLY_ID: $crate::messages::MessageId = $crate::messages::MessageId {
                name: concat!($vpp, "_reply"),
                crc: $reply_crc,
            };
            type Details = $details;
        })*

        pub(super) const GETS: &[$crate::messages::Declared] = &[$(
            declared!($name, <$name as $crate::messages::Get>::ID, Get, copy_get),
            declared!($details, <$name as $crate::messages::Get>::DETAILS_ID, Details, copy_body),
            declared!(
                $crate::messages::reply::Cursor,
                <$name as $crate::messages::Get>::REPLY_ID, Reply, copy_reply
            ),
        )*];
    };
}

/// `Name("vpp_event", 0xcrc) { fields };`
macro_rules! events {
    ($(
        $(#[$meta:meta])*
        $name:ident($vpp:literal, $crc:literal) { $($fields:tt)* };
    )*) => {
        wire_structs! {$($(#[$meta])* $name { $($fields)* })*}

        $(impl $crate::messages::Message for $name {
            const IDS: &'static [$crate::messages::MessageId] = &[<Self as $crate::messages::EventMessage>::ID];
        })*

        $(impl $crate::messages::EventMessage for $name {
            const ID: $crate::messages::MessageId = $crate::messages::MessageId {
                name: $vpp,
                crc: $crc,
            };
        })*

        pub(super) const EVENTS: &[$crate::messages::Declared] = &[$(
            declared!($name, <$name as $crate::messages::EventMessage>::ID, Event, copy_body),
        )*];
    };
}

macro_rules! declared {
    ($type:ty, $id:expr, $role:ident, $copy:ident) => {
        $crate::messages::Declared {
            id: $id,
            role: $crate::messages::Role::$role,
            copy: $crate::messages::kinds::$copy::<$type>,
            #[cfg(test)]
            sample: $crate::messages::kinds::sample::$copy::<$type>,
        }
    };
}

/// What replies say besides their return value, which comes first.
macro_rules! replies {
    ($($(#[$meta:meta])* $name:ident { $($fields:tt)* })*) => {
        wire_structs! {$($(#[$meta])* $name { $($fields)* })*}
        $(impl $crate::messages::Reply for $name {})*
    };
}
