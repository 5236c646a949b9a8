#include "support/element_type.h"

#include "support/check.h"

namespace mcc {

std::string_view to_text(ElementType type) {
  switch (type) {
#define X(name, text, cls, bits) \
  case ElementType::name:        \
    return text;
    MCC_ELEMENT_TYPES(X)
#undef X
  }
  MCC_UNREACHABLE("unknown element type");
}

std::optional<ElementType> parse_element_type(std::string_view text) {
#define X(name, literal, cls, bits) \
  if (text == literal) return ElementType::name;
  MCC_ELEMENT_TYPES(X)
#undef X
  return std::nullopt;
}

TypeClass type_class(ElementType type) {
  switch (type) {
#define X(name, text, cls, bits) \
  case ElementType::name:        \
    return TypeClass::cls;
    MCC_ELEMENT_TYPES(X)
#undef X
  }
  MCC_UNREACHABLE("unknown element type");
}

int bit_width(ElementType type) {
  switch (type) {
#define X(name, text, cls, bits) \
  case ElementType::name:        \
    return bits;
    MCC_ELEMENT_TYPES(X)
#undef X
  }
  MCC_UNREACHABLE("unknown element type");
}

}  // namespace mcc
