//! The tables in which types and messages are declared.

/// Structures, laid out field after field.
///
/// `[u32: rules] field: Type` places a length field, counting the elements of `rules`, before
/// `field`. `field: Type = value` is a default other than zero.
macro_rules! wire_structs {
    ($(
        $(#[$meta:meta])*
        $name:ident {
            $(
                $(#[$field_meta:meta])*
                $([$count:ty: $array:ident])?
                $field:ident: $type:ty $(= $default:expr)?
            ),* $(,)?
        }
    )*) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: $type,)*
        }

        impl $crate::wire::Wire for $name {
            const MIN: usize = 0
                $($(+ <$count as $crate::wire::Wire>::MIN)? + <$type as $crate::wire::Wire>::MIN)*;

            fn put(
                &self,
                out: &mut $crate::wire::Writer,
            ) -> Result<(), $crate::wire::EncodeError> {
                // A message may be without fields.
                let _: &$crate::wire::Writer = out;
                $(
                    $(out.count::<$count>(self.$array.len())?;)?
                    $crate::wire::Wire::put(&self.$field, out)?;
                )*
                Ok(())
            }

            fn get(
                input: &mut $crate::wire::Reader<'_>,
            ) -> Result<Self, $crate::wire::DecodeError> {
                let _: &$crate::wire::Reader<'_> = input;
                Ok(Self {
                    $($field: {
                        $(input.count::<$count>()?;)?
                        $crate::wire::Wire::get(input)?
                    },)*
                })
            }

            fn unset() -> Self {
                Self::default()
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self {
                    $($field: default_or!($($default)?),)*
                }
            }
        }

        #[cfg(test)]
        impl $crate::wire::sample::Sample for $name {
            fn sample(random: &mut $crate::wire::sample::Random) -> Self {
                let _: &$crate::wire::sample::Random = random;
                Self {
                    $($field: $crate::wire::sample::Sample::sample(random),)*
                }
            }
        }
    )*};
}

macro_rules! default_or {
    () => {
        $crate::wire::Wire::unset()
    };
    ($default:expr) => {
        $default
    };
}

/// Enumerations. A value that is not listed is kept as `Other`.
macro_rules! wire_enums {
    ($(
        $(#[$meta:meta])*
        $name:ident: $raw:ident {
            $($(#[$variant_meta:meta])* $variant:ident = $value:literal),* $(,)?
        }
    )*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$variant_meta])* $variant,)*
            /// A value that this version does not know.
            Other($raw),
        }

        impl $name {
            /// The variant of a value.
            pub const fn from_raw(raw: $raw) -> Self {
                match raw {
                    $($value => Self::$variant,)*
                    other => Self::Other(other),
                }
            }

            /// The value as VPP numbers it.
            pub const fn raw(self) -> $raw {
                match self {
                    $(Self::$variant => $value,)*
                    Self::Other(raw) => raw,
                }
            }
        }

        raw_wire!($name: $raw);
    )*};
}

/// Sets of flags. Flags that are not listed are kept.
macro_rules! wire_flags {
    ($(
        $(#[$meta:meta])*
        $name:ident: $raw:ident {
            $($(#[$flag_meta:meta])* $flag:ident = $value:literal),* $(,)?
        }
    )*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
        pub struct $name($raw);

        impl $name {
            $($(#[$flag_meta])* pub const $flag: Self = Self($value);)*

            /// No flag.
            pub const fn empty() -> Self {
                Self(0)
            }

            /// The flags of a value.
            pub const fn from_raw(raw: $raw) -> Self {
                Self(raw)
            }

            /// The value as VPP numbers it.
            pub const fn raw(self) -> $raw {
                self.0
            }

            /// Whether all of these flags are set.
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }
        }

        impl std::ops::BitOr for $name {
            type Output = Self;

            fn bitor(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let known: &[(&str, $raw)] = &[$((stringify!($flag), $value)),*];
                let mut rest = self.0;
                let mut names = Vec::new();
                for (name, value) in known {
                    if *value != 0 && self.0 & value == *value {
                        names.push((*name).to_owned());
                        rest &= !value;
                    }
                }
                if rest != 0 {
                    names.push(format!("{rest:#x}"));
                }
                write!(f, concat!(stringify!($name), "({})"), names.join(" | "))
            }
        }

        raw_wire!($name: $raw);
    )*};
}

/// Types that travel as a number.
macro_rules! raw_wire {
    ($name:ident: $raw:ident) => {
        impl $crate::wire::Wire for $name {
            const MIN: usize = <$raw as $crate::wire::Wire>::MIN;

            fn put(&self, out: &mut $crate::wire::Writer) -> Result<(), $crate::wire::EncodeError> {
                $crate::wire::Wire::put(&self.raw(), out)
            }

            fn get(
                input: &mut $crate::wire::Reader<'_>,
            ) -> Result<Self, $crate::wire::DecodeError> {
                Ok(Self::from_raw($crate::wire::Wire::get(input)?))
            }

            fn unset() -> Self {
                Self::from_raw(0)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serde::Serialize::serialize(&self.raw(), serializer)
            }
        }

        #[cfg(test)]
        impl $crate::wire::sample::Sample for $name {
            fn sample(random: &mut $crate::wire::sample::Random) -> Self {
                Self::from_raw($crate::wire::sample::Sample::sample(random))
            }
        }
    };
}
