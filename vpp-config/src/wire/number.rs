//! Integers, truth values and floating point.

use super::{Count, DecodeError, EncodeError, Reader, Wire, Writer};

macro_rules! numbers {
    ($($type:ident)*) => {$(
        impl Wire for $type {
            const MIN: usize = size_of::<$type>();

            fn put(&self, out: &mut Writer) -> Result<(), EncodeError> {
                out.bytes(&self.to_be_bytes());
                Ok(())
            }

            fn get(input: &mut Reader<'_>) -> Result<Self, DecodeError> {
                Ok(Self::from_be_bytes(input.array()?))
            }

            fn unset() -> Self {
                Self::default()
            }
        }
    )*};
}

numbers!(u8 u16 u32 u64 i16 i32);

/// In the byte order of the machine: VPP leaves it as it is, and runs on the same machine.
impl Wire for f64 {
    const MIN: usize = 8;

    fn put(&self, out: &mut Writer) -> Result<(), EncodeError> {
        out.bytes(&self.to_ne_bytes());
        Ok(())
    }

    fn get(input: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self::from_ne_bytes(input.array()?))
    }

    fn unset() -> Self {
        0.0
    }
}

macro_rules! counts {
    ($($type:ident)*) => {$(
        impl Count for $type {
            const MAX_LEN: usize = $type::MAX as usize;

            fn from_len(len: usize) -> Option<Self> {
                len.try_into().ok()
            }

            fn to_len(&self) -> usize {
                // A target whose addresses are shorter than the count cannot hold that many.
                usize::try_from(*self).unwrap_or(usize::MAX)
            }
        }
    )*};
}

counts!(u8 u16 u32);

impl Wire for bool {
    const MIN: usize = 1;

    fn put(&self, out: &mut Writer) -> Result<(), EncodeError> {
        u8::from(*self).put(out)
    }

    fn get(input: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(u8::get(input)? != 0)
    }

    fn unset() -> Self {
        false
    }
}
