//! How operators' changes of nodes follow one another.

use super::NodeChange;

impl NodeChange {
    /// Applies a later change on top of this one: values that `next` sets replace earlier ones.
    pub fn follow(&mut self, next: &Self) {
        fn take<T: Clone>(here: &mut Option<T>, next: Option<&T>) {
            if let Some(next) = next {
                *here = Some(next.clone());
            }
        }
        take(&mut self.weight, next.weight.as_ref());
        take(&mut self.features, next.features.as_ref());
        take(&mut self.active_features, next.active_features.as_ref());
        take(&mut self.gres, next.gres.as_ref());
        take(&mut self.comment, next.comment.as_ref());
        take(&mut self.extra, next.extra.as_ref());
        take(&mut self.instance_id, next.instance_id.as_ref());
        take(&mut self.instance_type, next.instance_type.as_ref());
    }
    /// Removes changes of values that the configuration also has: weight, features and generic resources. Changes of
    /// comments and cloud data stay.
    pub fn reset(&mut self) {
        (self.weight, self.features, self.active_features, self.gres) = (None, None, None, None);
    }
}
