// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.28;

/// @title FHE keys and CRS that the KMS has generated, and which are active.
contract KMSGeneration {
    enum KeyType {
        Server,
        Public
    }

    struct KeyDigest {
        KeyType keyType;
        bytes digest;
    }

    error KeyNotGenerated(uint256 keyId);
    error CrsNotGenerated(uint256 crsId);
    error NotHostOwner(address sender);

    event ActivateKey(uint256 keyId, string[] kmsNodeStorageUrls, KeyDigest[] keyDigests);
    event ActivateCrs(uint256 crsId, string[] kmsNodeStorageUrls, bytes crsDigest);

    address public immutable owner;
    uint256 private _activeKeyId;
    uint256 private _activeCrsId;
    mapping(uint256 keyId => string[] urls) private _keyUrls;
    mapping(uint256 keyId => KeyDigest[] digests) private _keyDigests;
    mapping(uint256 crsId => string[] urls) private _crsUrls;
    mapping(uint256 crsId => bytes digest) private _crsDigests;

    constructor() {
        owner = msg.sender;
    }

    modifier onlyOwner() {
        if (msg.sender != owner) revert NotHostOwner(msg.sender);
        _;
    }

    function activateKey(uint256 keyId, string[] calldata urls, KeyDigest[] calldata digests) external onlyOwner {
        delete _keyUrls[keyId];
        for (uint256 i = 0; i < urls.length; i++) _keyUrls[keyId].push(urls[i]);
        delete _keyDigests[keyId];
        for (uint256 i = 0; i < digests.length; i++) _keyDigests[keyId].push(digests[i]);
        _activeKeyId = keyId;
        emit ActivateKey(keyId, urls, digests);
    }

    function activateCrs(uint256 crsId, string[] calldata urls, bytes calldata digest) external onlyOwner {
        delete _crsUrls[crsId];
        for (uint256 i = 0; i < urls.length; i++) _crsUrls[crsId].push(urls[i]);
        _crsDigests[crsId] = digest;
        _activeCrsId = crsId;
        emit ActivateCrs(crsId, urls, digest);
    }

    function getActiveKeyId() external view returns (uint256) {
        return _activeKeyId;
    }

    function getActiveCrsId() external view returns (uint256) {
        return _activeCrsId;
    }

    function getKeyMaterials(uint256 keyId) external view returns (string[] memory, KeyDigest[] memory) {
        if (_keyUrls[keyId].length == 0) revert KeyNotGenerated(keyId);
        return (_keyUrls[keyId], _keyDigests[keyId]);
    }

    function getCrsMaterials(uint256 crsId) external view returns (string[] memory, bytes memory) {
        if (_crsUrls[crsId].length == 0) revert CrsNotGenerated(crsId);
        return (_crsUrls[crsId], _crsDigests[crsId]);
    }
}
