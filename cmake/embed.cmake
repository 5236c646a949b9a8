# mcc_embed(TARGET SYMBOL FILE): the bytes of FILE as read-only data in TARGET. In C++:
#
#     extern "C" const char SYMBOL_begin[], SYMBOL_end[];

enable_language(ASM)

function(mcc_embed target symbol file)
  if(NOT EXISTS "${file}")
    message(FATAL_ERROR "mcc_embed: there is no file ${file} (scripts/setup installs what is embedded)")
  endif()
  set(source "${CMAKE_CURRENT_BINARY_DIR}/embedded_${symbol}.S")
  set(text "  .section .rodata.${symbol},\"a\",@progbits\n  .balign 16\n")
  string(APPEND text "  .globl ${symbol}_begin\n${symbol}_begin:\n  .incbin \"${file}\"\n")
  string(APPEND text "  .globl ${symbol}_end\n${symbol}_end:\n  .byte 0\n")
  string(APPEND text "  .section .note.GNU-stack,\"\",@progbits\n")
  file(CONFIGURE OUTPUT "${source}" CONTENT "${text}" @ONLY)
  set_source_files_properties("${source}" PROPERTIES OBJECT_DEPENDS "${file}")
  target_sources(${target} PRIVATE "${source}")
endfunction()
