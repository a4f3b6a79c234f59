# What `make install` puts into a system, and the .deb that `make package` makes of the same files.
include(GNUInstallDirs)

# ---- man pages and completion, made from the table of options ----------------------------------------------------
add_executable(penstock_manual EXCLUDE_FROM_ALL server/manual/main.c)
target_link_libraries(penstock_manual manual)
set_target_properties(penstock_manual PROPERTIES LINKER_LANGUAGE C)
set(made ${CMAKE_BINARY_DIR}/manual)
add_custom_command(OUTPUT ${made}.made DEPENDS penstock_manual
                   COMMAND ${CMAKE_COMMAND} -E rm -rf ${made}
                   COMMAND penstock_manual ${made}
                   COMMAND sh -c "gzip -9nr ${made}/man1 ${made}/man5"
                   COMMAND ${CMAKE_COMMAND} -E touch ${made}.made)
add_custom_target(installed DEPENDS ${made}.made penstock)

install(TARGETS penstock)
install(DIRECTORY ${made}/man1 ${made}/man5 DESTINATION ${CMAKE_INSTALL_MANDIR})
install(FILES ${made}/bash/penstock DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${made}/zsh/_penstock DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions)
install(FILES ${made}/fish/penstock.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)

# ---- units and the options of the service. Their paths depend on the prefix, so they are written when they are installed.
if(TARGET kernels_cuda)
    set(deb penstock-cuda)
    set(other penstock)
    set(provides penstock)
    set(unit_devices "the GPU's driver maps memory that it writes and executes, and needs its devices\nPrivateDevices=no\nDevicePolicy=auto")
else()
    set(deb penstock)
    set(other penstock-cuda)
    set(provides "")
    set(unit_devices "a CPU needs no device, and no memory that is both written and executed\nPrivateDevices=yes\nDevicePolicy=closed\nMemoryDenyWriteExecute=yes")
endif()
set(PENSTOCK_UNITS lib/systemd/system CACHE STRING "folder of systemd's units, under the prefix unless it is absolute")
install(CODE "
    set(PENSTOCK_BIN ${CMAKE_INSTALL_BINDIR})
    set(PENSTOCK_UNITS ${PENSTOCK_UNITS})
    set(PENSTOCK_DEVICES \"${unit_devices}\")
    set(PENSTOCK_SOURCE ${CMAKE_SOURCE_DIR})
    set(PENSTOCK_BUILD ${CMAKE_BINARY_DIR})")
install(SCRIPT deploy/install_units.cmake)

# ---- the licence, and the files that only Debian wants in its place ------------------------------------------------
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/licenses/penstock COMPONENT licence)
install(FILES deploy/debian/copyright ${CMAKE_BINARY_DIR}/debian/changelog.Debian.gz DESTINATION share/doc/${deb}
        COMPONENT debian EXCLUDE_FROM_ALL)
install(FILES ${CMAKE_BINARY_DIR}/debian/${deb} DESTINATION share/lintian/overrides COMPONENT debian EXCLUDE_FROM_ALL)
install(DIRECTORY DESTINATION /var/lib/penstock/models COMPONENT debian EXCLUDE_FROM_ALL)
set(changed $ENV{SOURCE_DATE_EPOCH})
if(NOT changed)
    set(changed 0)
endif()
execute_process(COMMAND date -R -u -d @${changed} OUTPUT_VARIABLE PENSTOCK_DATE OUTPUT_STRIP_TRAILING_WHITESPACE)
configure_file(deploy/debian/lintian-overrides.in debian/${deb} @ONLY)
configure_file(deploy/debian/changelog.in debian/changelog.Debian @ONLY)
execute_process(COMMAND gzip -9nkf ${CMAKE_BINARY_DIR}/debian/changelog.Debian)

set(CPACK_GENERATOR DEB)
set(CPACK_INSTALL_CMAKE_PROJECTS "${CMAKE_BINARY_DIR};penstock;Unspecified;/;${CMAKE_BINARY_DIR};penstock;debian;/")
set(CPACK_SET_DESTDIR ON)
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGE_NAME ${deb})
set(CPACK_DEBIAN_PACKAGE_PROVIDES ${provides})
set(CPACK_DEBIAN_PACKAGE_CONFLICTS ${other})
set(CPACK_DEBIAN_PACKAGE_REPLACES ${other})
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "Penstock maintainers <penstock@localhost.localdomain>")
set(CPACK_DEBIAN_PACKAGE_SECTION net)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# Libraries that are loaded by dlopen: the first two fetch models, libzmq is for --kv-events only, and with CUDA cuBLAS and
# NCCL are for --no-deterministic and for several GPUs. The last two are in NVIDIA's archive only.
set(CPACK_DEBIAN_PACKAGE_DEPENDS "adduser, libcurl4, libssl3")
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "libzmq5")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "bash-completion")
if(TARGET kernels_cuda)
    string(APPEND CPACK_DEBIAN_PACKAGE_SUGGESTS ", libcublas-${CUDAToolkit_VERSION_MAJOR}-${CUDAToolkit_VERSION_MINOR}, libnccl2")
endif()
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "HTTP inference server for language models")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
    "Penstock loads a GGUF file or a Hugging Face folder and answers the requests
of OpenAI's, Anthropic's and Ollama's clients, whole or as a stream. It serves
many users of one model from a small machine, and a request gets the same
bytes whatever else the server is doing.")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
file(WRITE ${CMAKE_BINARY_DIR}/debian/conffiles "/etc/penstock/penstock.yaml\n")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${CMAKE_SOURCE_DIR}/deploy/debian/postinst ${CMAKE_SOURCE_DIR}/deploy/debian/prerm
    ${CMAKE_SOURCE_DIR}/deploy/debian/postrm ${CMAKE_BINARY_DIR}/debian/conffiles)
include(CPack)
