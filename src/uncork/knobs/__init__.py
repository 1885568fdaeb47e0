"""Every writable thing: read, same(want, got), write, scope, owner, risk."""
