//! Arrays: of fixed length, and with a length field before them.

use super::{DecodeError, EncodeError, Reader, Wire, Writer};

impl<T: Wire, const N: usize> Wire for [T; N] {
    const MIN: usize = N * T::MIN;

    fn put(&self, out: &mut Writer) -> Result<(), EncodeError> {
        self.iter().try_for_each(|element| element.put(out))
    }

    fn get(input: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut array = Self::unset();
        for element in &mut array {
            *element = T::get(input)?;
        }
        Ok(array)
    }

    fn unset() -> Self {
        std::array::from_fn(|_| T::unset())
    }
}

/// The length field is written and read where the message has it, by [`Writer::count`] and
/// [`Reader::count`].
impl<T: Wire> Wire for Vec<T> {
    const MIN: usize = 0;

    fn put(&self, out: &mut Writer) -> Result<(), EncodeError> {
        self.iter().try_for_each(|element| element.put(out))
    }

    fn get(input: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let count = input.take_count(T::MIN)?;
        let mut elements = Vec::with_capacity(count);
        for _ in 0..count {
            elements.push(T::get(input)?);
        }
        Ok(elements)
    }

    fn unset() -> Self {
        Vec::new()
    }
}
