//! Frames: a length and a JSON value.

use std::io;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use zeroize::Zeroizing;

/// The longest frame, in bytes.
pub const MAX_FRAME: usize = 16 * 1024 * 1024;

/// Why a frame could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The socket failed.
    #[error("the control connection failed")]
    Io(#[from] io::Error),
    /// The frame is longer than [`MAX_FRAME`].
    #[error("a control message of {length} bytes is too long: {MAX_FRAME} is the most")]
    TooLong {
        /// The length in bytes.
        length: usize,
    },
    /// The peer broke off inside a frame.
    #[error("the control connection ended inside a message")]
    Truncated,
    /// The frame is not the JSON of a message.
    #[error("a control message is malformed")]
    Malformed(#[source] serde_json::Error),
}

/// Reads frames. Cancelling [`FrameReader::next`] loses nothing.
#[derive(Debug)]
pub(super) struct FrameReader<R> {
    stream: R,
    header: [u8; 4],
    header_filled: usize,
    body: Zeroizing<Vec<u8>>,
    body_filled: usize,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    pub(super) fn new(stream: R) -> Self {
        Self {
            stream,
            header: [0; 4],
            header_filled: 0,
            body: Zeroizing::default(),
            body_filled: 0,
        }
    }

    /// The next message; none when the peer closed the connection between two.
    pub(super) async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, FrameError> {
        while self.header_filled < 4 {
            let free = &mut self.header[self.header_filled..];
            match self.stream.read(free).await? {
                0 if self.header_filled == 0 => return Ok(None),
                0 => return Err(FrameError::Truncated),
                count => self.header_filled += count,
            }
            if self.header_filled == 4 {
                let length = u32::from_be_bytes(self.header) as usize;
                if length > MAX_FRAME {
                    return Err(FrameError::TooLong { length });
                }
                self.body = Zeroizing::new(vec![0; length]);
                self.body_filled = 0;
            }
        }
        while self.body_filled < self.body.len() {
            match self.stream.read(&mut self.body[self.body_filled..]).await? {
                0 => return Err(FrameError::Truncated),
                count => self.body_filled += count,
            }
        }
        self.header_filled = 0;
        let body = std::mem::take(&mut self.body);
        serde_json::from_slice(&body).map_err(FrameError::Malformed)
    }
}

/// Encodes a message into a frame. `size_hint` is the room to set aside at first.
pub(super) fn encode<T: Serialize>(
    message: &T,
    size_hint: usize,
) -> Result<Zeroizing<Vec<u8>>, FrameError> {
    let mut frame = Zeroizing::new(Vec::with_capacity(4 + size_hint));
    frame.extend_from_slice(&[0; 4]);
    serde_json::to_writer(&mut *frame, message).map_err(FrameError::Malformed)?;
    let length = frame.len() - 4;
    match u32::try_from(length) {
        Ok(prefix) if length <= MAX_FRAME => frame[..4].copy_from_slice(&prefix.to_be_bytes()),
        _ => return Err(FrameError::TooLong { length }),
    }
    Ok(frame)
}

/// Writes one message.
pub(super) async fn write<W: AsyncWrite + Unpin, T: Serialize>(
    stream: &mut W,
    message: &T,
    size_hint: usize,
) -> Result<(), FrameError> {
    let frame = encode(message, size_hint)?;
    stream.write_all(&frame).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn frames_come_back_whole_from_any_split() {
        let (mut near, far) = tokio::io::duplex(3);
        let mut reader = FrameReader::new(far);
        let writer = tokio::spawn(async move {
            for text in ["", "a", "a longer piece of text"] {
                write(&mut near, &text, 0).await.unwrap();
            }
        });
        for expected in ["", "a", "a longer piece of text"] {
            assert_eq!(reader.next::<String>().await.unwrap().unwrap(), expected);
        }
        writer.await.unwrap();
        assert!(reader.next::<String>().await.unwrap().is_none());
    }

    #[tokio::test]
    async fn a_bad_frame_is_an_error() {
        let too_long = [0xff_u8; 8];
        let error = FrameReader::new(&too_long[..])
            .next::<String>()
            .await
            .unwrap_err();
        assert!(matches!(error, FrameError::TooLong { .. }));
        let cut = [0_u8, 0, 0, 9, b'"'];
        let error = FrameReader::new(&cut[..])
            .next::<String>()
            .await
            .unwrap_err();
        assert!(matches!(error, FrameError::Truncated));
        let not_json = [0_u8, 0, 0, 1, b'x'];
        let error = FrameReader::new(&not_json[..])
            .next::<String>()
            .await
            .unwrap_err();
        assert!(matches!(error, FrameError::Malformed(_)));
    }
}
