// A detector that remembers: saves and loads its state, one type with Fields(), the same way for all of them.
//
// `Self` has a type State, `state_` of it, Fresh() that makes the one it begins with, and kStateVersion, which rises
// whenever what is saved changes: older bytes are then foreign. It makes Stateful<Self> its friend.
#pragma once

#include <cstdint>

#include "base/archive.h"
#include "detect/detector.h"

namespace gyrostat::detect {

template <class Self>
class Stateful : public Detector {
 public:
  void Save(base::ByteWriter* out) const override {
    out->Put(Self::kStateVersion);
    base::SaveTo(out, static_cast<const Self*>(this)->state_);
  }
  bool Load(base::ByteReader* in) override {
    Self& self = *static_cast<Self*>(this);
    self.state_ = self.Fresh();
    if (in->Get<uint8_t>() == Self::kStateVersion && base::LoadFrom(in, &self.state_) && Fits()) return true;
    self.state_ = self.Fresh();
    return false;
  }

 private:
  // Whether what was loaded can be the state of a detector with these options.
  virtual bool Fits() const { return true; }
};

}  // namespace gyrostat::detect
