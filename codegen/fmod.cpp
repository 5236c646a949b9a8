// C's fmod as an internal function of a kernel's module: exact, by shift and subtract on the significands.
#include <llvm/AsmParser/Parser.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>
#include <llvm/Linker/Linker.h>
#include <llvm/Support/SourceMgr.h>
#include <llvm/TargetParser/Triple.h>

#include "codegen/kernel_emitter.h"

namespace mcc::codegen {

namespace {

// FP, INT: the types; SUFFIX of intrinsics; M: bits of the stored significand; LEAD: leading zeros of a normalised one.
// |x| < |y| returns x; otherwise the significand of x is reduced by that of y once for each step of the exponent.
constexpr const char* kTemplate = R"(
define internal FP @NAME(FP %x, FP %y) nounwind noinline memory(none) {
entry:
  %xb = bitcast FP %x to INT
  %yb = bitcast FP %y to INT
  %ax = and INT %xb, ABS
  %ay = and INT %yb, ABS
  %sign = xor INT %xb, %ax
  %y_zero = icmp eq INT %ay, 0
  %y_nan = icmp ugt INT %ay, INF
  %x_special = icmp uge INT %ax, INF
  %bad0 = or i1 %y_zero, %y_nan
  %bad = or i1 %bad0, %x_special
  br i1 %bad, label %nan, label %compare
nan:
  ret FP 0x7FF8000000000000
compare:
  %less = icmp ult INT %ax, %ay
  br i1 %less, label %same, label %split
same:
  ret FP %x
split:
  %xe0 = lshr INT %ax, M
  %ye0 = lshr INT %ay, M
  %xm0 = and INT %ax, MASK
  %ym0 = and INT %ay, MASK
  %x_sub = icmp eq INT %xe0, 0
  %y_sub = icmp eq INT %ye0, 0
  %xlz = call INT @llvm.ctlz.INT(INT %xm0, i1 false)
  %ylz = call INT @llvm.ctlz.INT(INT %ym0, i1 false)
  %xs = sub INT %xlz, LEAD
  %ys = sub INT %ylz, LEAD
  %xs_safe = select i1 %x_sub, INT %xs, INT 0
  %ys_safe = select i1 %y_sub, INT %ys, INT 0
  %xm_sub = shl INT %xm0, %xs_safe
  %ym_sub = shl INT %ym0, %ys_safe
  %xe_sub = sub INT 1, %xs
  %ye_sub = sub INT 1, %ys
  %xm_norm = or INT %xm0, ONE
  %ym_norm = or INT %ym0, ONE
  %xm = select i1 %x_sub, INT %xm_sub, INT %xm_norm
  %ym = select i1 %y_sub, INT %ym_sub, INT %ym_norm
  %xe = select i1 %x_sub, INT %xe_sub, INT %xe0
  %ye = select i1 %y_sub, INT %ye_sub, INT %ye0
  br label %loop
loop:
  %m = phi INT [ %xm, %split ], [ %m_next, %step ]
  %e = phi INT [ %xe, %split ], [ %e_next, %step ]
  %fits = icmp uge INT %m, %ym
  %m_less = sub INT %m, %ym
  %m_red = select i1 %fits, INT %m_less, INT %m
  %more = icmp sgt INT %e, %ye
  br i1 %more, label %step, label %done
step:
  %m_next = shl INT %m_red, 1
  %e_next = sub INT %e, 1
  br label %loop
done:
  %zero = icmp eq INT %m_red, 0
  br i1 %zero, label %return_zero, label %pack
return_zero:
  %z = bitcast INT %sign to FP
  ret FP %z
pack:
  %lz = call INT @llvm.ctlz.INT(INT %m_red, i1 true)
  %shift = sub INT %lz, LEAD
  %mn = shl INT %m_red, %shift
  %en = sub INT %e, %shift
  %normal = icmp sgt INT %en, 0
  %en_safe = select i1 %normal, INT %en, INT 0
  %back = sub INT 1, %en
  %back_safe = select i1 %normal, INT 0, INT %back
  %frac = and INT %mn, MASK
  %high = shl INT %en_safe, M
  %packed = or INT %frac, %high
  %subnormal = lshr INT %mn, %back_safe
  %magnitude = select i1 %normal, INT %packed, INT %subnormal
  %bits = or INT %magnitude, %sign
  %r = bitcast INT %bits to FP
  ret FP %r
}
declare INT @llvm.ctlz.INT(INT, i1)
)";

std::string replace_words(std::string text, const std::vector<std::pair<std::string, std::string>>& words) {
  for (const auto& [from, to] : words) {
    for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
      text.replace(at, from.size(), to);
    }
  }
  return text;
}

}  // namespace

llvm::Function* get_fmod(llvm::Module& module, bool is_double) {
  std::string name = is_double ? "mcc.fmod.f64" : "mcc.fmod.f32";
  if (llvm::Function* existing = module.getFunction(name)) return existing;
  // "INTF" words first where one is the prefix of another.
  std::string source = is_double ? replace_words(kTemplate, {{"NAME", name},
                                                             {"MASK", "4503599627370495"},
                                                             {"LEAD", "11"},
                                                             {"ABS", "9223372036854775807"},
                                                             {"INF", "9218868437227405312"},
                                                             {"ONE", "4503599627370496"},
                                                             {"INT", "i64"},
                                                             {"FP", "double"},
                                                             {", M\n", ", 52\n"}})
                                 : replace_words(kTemplate, {{"NAME", name},
                                                             {"MASK", "8388607"},
                                                             {"LEAD", "8"},
                                                             {"ABS", "2147483647"},
                                                             {"INF", "2139095040"},
                                                             {"ONE", "8388608"},
                                                             {"INT", "i32"},
                                                             {"FP", "float"},
                                                             {", M\n", ", 23\n"}});
  llvm::SMDiagnostic error;
  std::unique_ptr<llvm::Module> part = llvm::parseAssemblyString(source, error, module.getContext());
  MCC_CHECK(part, "fmod: ", error.getMessage().str());
  part->setDataLayout(module.getDataLayout());
  part->setTargetTriple(module.getTargetTriple());
  // Linking drops an internal function that nobody calls yet.
  part->getFunction(name)->setLinkage(llvm::Function::ExternalLinkage);
  MCC_CHECK(!llvm::Linker::linkModules(module, std::move(part)), "fmod does not link");
  llvm::Function* function = module.getFunction(name);
  function->setLinkage(llvm::Function::InternalLinkage);
  // GPUs have no use for calls.
  if (llvm::Triple(module.getTargetTriple()).isNVPTX()) {
    function->removeFnAttr(llvm::Attribute::NoInline);
    function->addFnAttr(llvm::Attribute::AlwaysInline);
  }
  return function;
}

}  // namespace mcc::codegen
