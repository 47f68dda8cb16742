//! A task that ends with its owner, also when a race was given up halfway.

use tokio::task::JoinHandle;

pub struct Background(JoinHandle<()>);

impl Background {
    pub fn spawn(work: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(work))
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.0.abort();
    }
}
